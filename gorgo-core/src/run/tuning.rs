//! The link between records and tuners: every record passes the router's tuners, and their own records follow it to the
//! other listeners. At the start, tuners continue where the last run stopped.

use std::sync::Arc;

use gorgo_observe::{RecordListener, log};
use gorgo_routing::model::{Clock, PolicyIndex, StoreRecord};
use gorgo_routing::policy::Router;
use gorgo_store::{HistoryDatabase, RunInfo, StoreError};

/// The listener in front of all others.
pub(super) struct TuningListener {
    pub(super) router: Arc<Router>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) next: Arc<dyn RecordListener>,
}

impl RecordListener for TuningListener {
    fn record(&self, record: StoreRecord) {
        // The tuners' records first: the row of new weights must precede the first decision made with them.
        for said in self.router.observe_record(&record, self.clock.now()) {
            self.next.record(said);
        }
        self.next.record(record);
    }
}

/// Continues from the state that the tuners of the same policies left in the database; with `cold` only the numbering
/// of generations continues. Updates `run` with the resulting weights.
pub(super) async fn resume(
    store: &mut HistoryDatabase,
    router: &Router,
    run: &mut RunInfo,
    cold: bool,
) -> Result<(), StoreError> {
    for (policy, place) in router.policies().list.iter().zip(0_u16..) {
        let Some(info) = run.policies.get_mut(usize::from(place)).filter(|_| policy.tune.is_some()) else { continue };
        let Some(last) = store.last_tuning(info).await? else { continue };
        // Numbering continues in any case: a generation's number must not be used twice for the same policy.
        let state = last.state.as_deref().filter(|_| !cold);
        match router.resume_tuning(PolicyIndex(place), state, last.generation) {
            Ok(()) if state.is_some() => {
                log::tuning_resumed(&policy.name, &router.tuner_status(PolicyIndex(place)).unwrap_or_default());
            }
            Ok(()) => {}
            // A refused state is no reason not to start: the configured weights are always usable.
            Err(cause) => log::tuning_refused(&policy.name, &cause),
        }
        if let Some(weights) = router.weights(PolicyIndex(place)) {
            info.weights = (*weights).clone();
        }
    }
    Ok(())
}
