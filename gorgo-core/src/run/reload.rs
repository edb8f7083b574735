//! SIGHUP: the configuration is read and checked again, as `gorgo check` does. If it is valid, its policies take over
//! between two decisions, with every plugin in the build that its file now contains. If anything is wrong, or needs a
//! restart, nothing changes and an event gives the reason.
//!
//! Only policies are reloaded: the fleet must be unchanged, and all other sections wait for the next start.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::ConfigLoadResult;
use super::serve::policy_info;
use super::signals::ReloadSignals;
use gorgo_observe::FactOutlet;
use gorgo_routing::config::{Config, ReportStyle, render};
use gorgo_routing::model::{Clock, EventKind};
use gorgo_routing::policy::Router;
use gorgo_store::HistorySink;

/// Reads the configuration again, from the same sources as at the start. May block.
#[derive(Clone)]
pub struct ConfigReader(Arc<dyn Fn() -> ConfigLoadResult + Send + Sync>);

impl ConfigReader {
    /// Reads by calling `read`.
    #[must_use]
    pub fn new(read: impl Fn() -> ConfigLoadResult + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for ConfigReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigReader")
    }
}

/// Parts that a reload works on.
pub(super) struct ReloadTask {
    /// The configuration that the process runs with.
    pub(super) config: Config,
    pub(super) reader: ConfigReader,
    pub(super) router: Arc<Router>,
    pub(super) sink: HistorySink,
    pub(super) outlet: FactOutlet,
    pub(super) clock: Arc<dyn Clock>,
}

impl ReloadTask {
    /// Reloads at each SIGHUP, one at a time, until `stop`.
    pub(super) async fn run(self, mut hangups: ReloadSignals, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = hangups.next() => {}
            }
            let (kind, text) = match self.reload().await {
                Ok(text) => (EventKind::ConfigChange, text),
                Err(cause) => (EventKind::ConfigRefused, format!("nothing changed: {cause}")),
            };
            self.outlet.announce(kind, text);
        }
    }

    /// Reloads once. Returns the changes, or the reason why nothing changed.
    async fn reload(&self) -> Result<String, String> {
        let ConfigReader(read) = self.reader.clone();
        // Not on a serving thread: trying plugin libraries in separate processes may take seconds.
        let loading = tokio::task::spawn_blocking(move || read()).await.map_err(|cause| cause.to_string())?;
        let Some((config, policies)) = loading.ready else {
            let report = render(&loading.faults, &loading.origins, ReportStyle::Plain);
            return Err(report.lines().collect::<Vec<_>>().join("; "));
        };
        if let Some(names) = changed_replicas(&self.config, &config) {
            return Err(format!("[[replica]] changed, added, removed or moved: {names}; restart to apply that"));
        }
        // With the policies of the running configuration put in, everything that still differs is not reloadable.
        let rest = if (Config { policies: self.config.policies.clone(), ..config }) == self.config {
            ""
        } else {
            "; sections other than policies wait for the next start"
        };
        let Some(succession) = self.router.stage_reload(policies)? else {
            return Ok(format!("no policy or plugin changed{rest}"));
        };
        let mut changed = Vec::new();
        let mut infos = Vec::new();
        for (policy, weights) in succession.new_policies() {
            let libraries: Vec<&str> = policy.libraries().filter_map(|sha256| sha256.get(..12)).collect();
            let with = if libraries.is_empty() { String::new() } else { format!(" with {}", libraries.join(", ")) };
            changed.push(format!("{}{with}", policy.name));
            infos.push(policy_info(policy, (*weights).clone()));
        }
        // Before the switch: the store must know the new policies' numbers when the first decision names one.
        self.sink.add_policies(infos, self.clock.now()).await.map_err(|cause| cause.to_string())?;
        // The tuners of replaced policies end here; their last records belong to the history.
        for record in self.router.apply_reload(succession, self.clock.now()) {
            self.outlet.record(record);
        }
        Ok(format!("reloaded: {}{rest}", changed.join("; ")))
    }
}

/// Names of the replicas that changed or moved; `None` if none did. The order counts, because ids are positions.
fn changed_replicas(old: &Config, new: &Config) -> Option<String> {
    let length = old.replicas.len().max(new.replicas.len());
    let mut names: Vec<&str> = (0..length)
        .map(|place| (old.replicas.get(place), new.replicas.get(place)))
        .filter(|(old, new)| old != new)
        .flat_map(|(old, new)| [old, new])
        .flatten()
        .map(|section| section.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}
