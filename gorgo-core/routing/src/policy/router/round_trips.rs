//! What decisions ask of the data plane's connections, where their policy or a shadow of it charges for them.

use std::sync::Arc;

use super::Router;
use super::active_policies::Ruling;
use crate::model::{At, Connections, Needs, RequestView};
use crate::policy::Policy;

impl Router {
    /// Lets decisions ask about the connections to the fleet, from now on and once.
    pub fn ask_connections(&self, connections: Arc<dyn Connections>) {
        self.connections.get_or_init(|| connections);
    }

    /// The round trips that the request needs to each replica, where this decision reads them.
    pub(super) fn trips(
        &self,
        ruling: &Ruling,
        policy: &Policy,
        request: &RequestView,
        at: At,
        trips: &mut [Option<f64>],
    ) {
        let shadows = policy.shadows.iter().filter_map(|id| ruling.policies.get(*id)).map(|shadow| shadow.needs);
        let read = shadows.fold(policy.needs, Needs::and).contains(Needs::NETWORK);
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
