//! Between what happens and who is told: shows every record to the router's tuners and takes down what they say; and
//! at the start, lets them go on where the last run stopped.

use std::sync::Arc;

use gorgo_observe::{Listener, log};
use gorgo_routing::model::{Clock, PolicyIndex, Record};
use gorgo_routing::policy::Router;
use gorgo_store::{RunInfo, Store, StoreError};

/// The listener in front of all others.
pub(super) struct Tuned {
    pub(super) router: Arc<Router>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) next: Arc<dyn Listener>,
}

impl Listener for Tuned {
    fn record(&self, record: Record) {
        // A decision's weights are taken down before the decision.
        for said in self.router.tuning(&record, self.clock.now()) {
            self.next.record(said);
        }
        self.next.record(record);
    }
}

/// Goes on from what the tuners of the same policies left in the database; with `cold` only their numbers. The run is
/// written down with the weights that hold then.
pub(super) async fn resume(
    store: &mut Store,
    router: &Router,
    run: &mut RunInfo,
    cold: bool,
) -> Result<(), StoreError> {
    for (policy, place) in router.policies().list.iter().zip(0_u16..) {
        let Some(info) = run.policies.get_mut(usize::from(place)).filter(|_| policy.tune.is_some()) else { continue };
        let Some(last) = store.last_tuning(info).await? else { continue };
        let state = last.state.as_deref().filter(|_| !cold);
        match router.resume_tuning(PolicyIndex(place), state, last.generation) {
            Ok(()) if state.is_some() => {
                log::tuning_resumed(&policy.name, &router.tuner_said(PolicyIndex(place)).unwrap_or_default());
            }
            Ok(()) => {}
            Err(cause) => log::tuning_refused(&policy.name, &cause),
        }
        if let Some(weights) = router.weights(PolicyIndex(place)) {
            info.weights = (*weights).clone();
        }
    }
    Ok(())
}
