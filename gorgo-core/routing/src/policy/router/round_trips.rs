//! Round trips that the data plane's connections need, for decisions whose policy or shadows charge for them.

use std::sync::Arc;

use super::Router;
use super::active_policies::ActivePolicies;
use crate::model::{RequestView, RequiredFacts, RoundTripEstimator, UnixMicros};
use crate::policy::Policy;

impl Router {
    /// Lets decisions query the connections to the fleet; only the first call has an effect.
    pub fn set_round_trip_estimator(&self, connections: Arc<dyn RoundTripEstimator>) {
        self.connections.get_or_init(|| connections);
    }

    /// The round trips that the request needs to each replica, if this decision reads them.
    pub(super) fn needed_round_trips(
        &self,
        ruling: &ActivePolicies,
        policy: &Policy,
        request: &RequestView,
        at: UnixMicros,
        trips: &mut [Option<f64>],
    ) {
        // Shadows are evaluated on the same facts, so their needs count too.
        let shadows = policy.shadows.iter().filter_map(|id| ruling.policies.get(*id)).map(|shadow| shadow.needs);
        let read = shadows.fold(policy.needs, RequiredFacts::union).contains(RequiredFacts::NETWORK);
        match self.connections.get().filter(|_| read) {
            None => trips.fill(None),
            Some(connections) => {
                for (trips, replica) in trips.iter_mut().zip(&self.fleet) {
                    *trips = connections.round_trips(replica.id, request.body_bytes, at);
                }
            }
        }
    }
}
