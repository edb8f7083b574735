//! The scrape: load of an engine as it reports it, its KV capacity, its models, and restarts. One loop per replica, on
//! a connection separate from the probe's: a metrics page of 50 KB would delay a probe.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::engine::client::{EngineClient, EngineClientError};
use crate::engine::monitor::limits::{self, EngineLimits};
use crate::engine::monitor::metrics::{self, EngineMetrics};
use crate::engine::monitor::{JitteredInterval, MonitoredReplica, ProbeContext, WarningLatch, key_warning};
use gorgo_routing::config::ScrapeConfig;
use gorgo_routing::model::engine::{CapacityPage, LimitsPage, MetricsPage};
use gorgo_routing::model::{EngineReport, UnixMicros};

/// Longest page that is read, bytes: vLLM's are 54 KB.
pub(in crate::engine) const MOST_BYTES: usize = 8 << 20;
/// Age at which the model list is read again, ms.
const MODELS_EVERY_MS: f64 = 60_000.0;
/// Shortest time limit for a page, ms: an engine in the middle of a step answers late.
const LEAST_LIMIT_MS: u64 = 2_000;
/// A counter below this share of its last value has restarted. Not simply "below": a page that lacks one of several
/// label sets would cost a whole prefix index.
const RESTART_SHARE: f64 = 0.5;
/// Start times closer than this are the same start, seconds.
const SAME_START_SECS: f64 = 1.0;

/// Scrapes a replica until `senses.stop`; returns only then, so a task that ends earlier is a defect to be reported.
pub async fn scrape_loop(watched: MonitoredReplica, senses: ProbeContext, config: ScrapeConfig) {
    let mut schedule = JitteredInterval::new(config.interval_ms, senses.seed, watched.replica, 2);
    let limit = Duration::from_millis(config.interval_ms.max(LEAST_LIMIT_MS));
    let mut scraper = MetricsScraper::new(watched, limit, &senses);
    loop {
        // Started before the step, so that the interval does not grow by the duration of the scrape.
        let pause = tokio::time::sleep(schedule.next());
        let step = async {
            scraper.step(&senses).await;
            pause.await;
        };
        tokio::select! {
            () = step => {}
            () = senses.stop.cancelled() => return,
        }
    }
}

/// Scrape of a replica, with the last results, to detect changes.
#[derive(Debug)]
pub struct MetricsScraper {
    watched: MonitoredReplica,
    client: EngineClient,
    limit: Duration,
    /// Target of a redirect, so that it is followed once and not each time.
    moved: Option<String>,
    last: Option<(UnixMicros, EngineMetrics)>,
    models_at: Option<UnixMicros>,
    capacity_known: bool,
    /// `None` until they were read since the engine started.
    limits: Option<EngineLimits>,
    failed: bool,
    page_complaint: WarningLatch,
    models_complaint: WarningLatch,
}

impl MetricsScraper {
    /// Scraper that has not sent anything yet. `limit`: a page that has not arrived by then is abandoned.
    #[must_use]
    pub fn new(watched: MonitoredReplica, limit: Duration, senses: &ProbeContext) -> Self {
        Self {
            client: EngineClient::new(watched.endpoint.clone(), senses.tasks.clone()),
            capacity_known: watched.adapter.capacity.is_none(),
            watched,
            limit,
            moved: None,
            last: None,
            models_at: None,
            limits: None,
            failed: false,
            page_complaint: WarningLatch::default(),
            models_complaint: WarningLatch::default(),
        }
    }

    /// Reads the metrics page if the engine has one, and the models if they are due; reports the results.
    pub async fn step(&mut self, senses: &ProbeContext) {
        // Before the page, whose report includes the limits.
        let asked = self.watched.adapter.limits.as_ref().filter(|_| self.limits.is_none());
        if let Some(page) = asked {
            self.limits(page, senses).await;
        }
        if let Some(page) = &self.watched.adapter.metrics {
            self.page(page, senses).await;
        }
        if asked.is_some() && self.last.is_none() {
            self.report_limits(senses);
        }
        let due = self.models_at.is_none_or(|at| senses.clock.now().millis_since(at) >= MODELS_EVERY_MS);
        if due && self.watched.learn_models {
            self.models(senses).await;
        }
        if let Some(page) = self.watched.adapter.capacity.as_ref().filter(|_| !self.capacity_known) {
            self.capacity(page, senses).await;
        }
    }

    async fn page(&mut self, page: &MetricsPage, senses: &ProbeContext) {
        let path = self.moved.clone().unwrap_or_else(|| page.path.to_owned());
        let got = self.client.get_following(&path, MOST_BYTES, self.limit, &*senses.clock).await;
        let at = senses.clock.now();
        let replica = self.watched.replica;
        let (read, complaint) = match got {
            Ok((answer, moved)) if answer.status.is_success() => {
                self.moved = moved.or_else(|| self.moved.take());
                senses.liveness.record_activity(replica, at);
                let read = metrics::read(&answer.body, page.series);
                let empty = read.is_empty().then(|| {
                    let (name, engine) = (&self.watched.name, self.watched.adapter.kind.name());
                    format!("replica {name}: GET {path} has no metrics of {engine}; check `engine`")
                });
                (Some(read), empty)
            }
            Ok((answer, _)) => {
                // The redirect may be what is wrong now, so the next scrape starts from the configured path.
                self.moved = None;
                (None, Some(self.refused_page(page, &path, answer.status)))
            }
            // The probe reports an engine that is late or gone; the readings become stale by themselves.
            Err(_) => (None, None),
        };
        // Without an answer the last warning remains in force; it must not be repeated after each lost page.
        if read.is_some() || complaint.is_some() {
            self.page_complaint.update(complaint, &self.watched, senses);
        }
        self.track_failure(read.is_none());
        let report = read.filter(|read| !read.is_empty()).map(|read| self.apply_page(at, read, senses));
        senses.outlet.scraped(replica, at, report);
    }

    fn refused_page(&self, page: &MetricsPage, path: &str, status: hyper::StatusCode) -> String {
        let (name, engine) = (&self.watched.name, self.watched.adapter.kind.name());
        key_warning(&self.watched, path, status).unwrap_or_else(|| {
            let remedy = match page.flag {
                Some(flag) if status == hyper::StatusCode::NOT_FOUND || status.as_u16() == 501 => {
                    format!(": start {engine} with {flag}")
                }
                _ => String::new(),
            };
            let status = status.as_u16();
            format!("replica {name} answers {status} to GET {path}, so its metrics are unknown{remedy}")
        })
    }

    /// Notes a failure or a recovery. An engine that comes back may serve other models.
    fn track_failure(&mut self, failed: bool) {
        if self.failed && !failed {
            self.models_at = None;
            self.limits = None;
        }
        self.failed = failed;
    }

    /// Report of a page, completed from the pages before it.
    fn apply_page(&mut self, at: UnixMicros, mut page: EngineMetrics, senses: &ProbeContext) -> EngineReport {
        let replica = self.watched.replica;
        if let Some((last_at, last)) = &self.last {
            if has_restarted(last, &page) {
                let name = &self.watched.name;
                let text = format!("replica {name}: the engine restarted (by its counters or its start time)");
                senses.outlet.restarted(replica, text);
                // The new process may serve other models with other limits.
                self.models_at = None;
                self.limits = None;
            } else if let (None, Some(before), Some(now)) =
                (page.report.throughput, last.generated_tokens_total, page.generated_tokens_total)
                && at > *last_at
            {
                // An engine without a rate on its page: computed from the counter.
                page.report.throughput = Some((now - before).max(0.0) / at.elapsed_since(*last_at).as_secs_f64());
            }
        }
        let limits = self.limits.unwrap_or_default();
        (page.report.decode_batch, page.report.max_running) = (limits.decode_batch, limits.max_running);
        page.report.prompt_tokens_total = page.prompt_tokens_total;
        let report = page.report;
        self.capacity_known |= report.kv_capacity_tokens.is_some();
        self.last = Some((at, page));
        report
    }

    async fn models(&mut self, senses: &ProbeContext) {
        let path = self.watched.adapter.models_path;
        let got = self.get(path, senses).await;
        let (models, complaint) = match got {
            Ok((status, body)) if status.is_success() => match model_names(&body) {
                Some(models) => (Some(models), None),
                None => (
                    None,
                    Some(format!(
                        "replica {}: GET {path} returned no list of models, so no engine listens there; check `url`",
                        self.watched.name
                    )),
                ),
            },
            Ok((status, _)) => {
                let text = key_warning(&self.watched, path, status).unwrap_or_else(|| {
                    let (name, status) = (&self.watched.name, status.as_u16());
                    format!("replica {name} answers {status} to GET {path}; list its models in `models` or check `url`")
                });
                (None, Some(text))
            }
            // Lost: the list is still due and is read with the next step.
            Err(_) => return,
        };
        self.models_complaint.update(complaint, &self.watched, senses);
        if let Some(models) = models {
            let at = senses.clock.now();
            self.models_at = Some(at);
            senses.liveness.record_activity(self.watched.replica, at);
            senses.outlet.lists_models(self.watched.replica, models);
        }
    }

    /// Reads the capacity from its own page, because the metrics page lacks it or is switched off.
    async fn capacity(&mut self, page: &CapacityPage, senses: &ProbeContext) {
        let Ok((status, body)) = self.get(page.path, senses).await else { return };
        // Read once: another answer would say the same.
        self.capacity_known = true;
        if let Some(tokens) = status.is_success().then(|| whole_member(&body, page.member)).flatten() {
            // Added to the last report, so that the store's row keeps the engine's other figures.
            let report = match &mut self.last {
                Some((_, last)) => {
                    last.report.kv_capacity_tokens = Some(tokens);
                    last.report
                }
                None => EngineReport { kv_capacity_tokens: Some(tokens), ..EngineReport::default() },
            };
            let at = senses.clock.now();
            senses.outlet.described(self.watched.replica, at, report);
        }
    }

    /// Reads how many requests the engine decodes cheaply, and how many it runs.
    async fn limits(&mut self, page: &LimitsPage, senses: &ProbeContext) {
        let Ok((status, body)) = self.get(page.path, senses).await else { return };
        // Read once: it would say the same until the engine restarts.
        self.limits = Some(if status.is_success() { limits::read(page, &body) } else { EngineLimits::default() });
    }

    /// Reports the limits by themselves if there is no metrics page to report them with.
    fn report_limits(&self, senses: &ProbeContext) {
        if let Some(limits) = self.limits.filter(|limits| *limits != EngineLimits::default()) {
            let EngineLimits { decode_batch, max_running } = limits;
            let report = EngineReport { decode_batch, max_running, ..EngineReport::default() };
            let at = senses.clock.now();
            senses.outlet.described(self.watched.replica, at, report);
        }
    }

    async fn get(
        &mut self,
        path: &str,
        senses: &ProbeContext,
    ) -> Result<(hyper::StatusCode, bytes::Bytes), EngineClientError> {
        let (answer, _) = self.client.get_following(path, MOST_BYTES, self.limit, &*senses.clock).await?;
        Ok((answer.status, answer.body))
    }
}

fn has_restarted(last: &EngineMetrics, page: &EngineMetrics) -> bool {
    let counter = match (last.prompt_tokens_total, page.prompt_tokens_total) {
        (Some(before), Some(now)) => now < before * RESTART_SHARE,
        // SGLang shows the counter only after its first request.
        (Some(before), None) => before > 0.0,
        (None, _) => false,
    };
    let started = matches!(
        (last.report.started_secs, page.report.started_secs),
        (Some(before), Some(now)) if (now - before).abs() > SAME_START_SECS
    );
    counter || started
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: String,
}

pub(in crate::engine) fn model_names(body: &[u8]) -> Option<Vec<Arc<str>>> {
    let list: ModelList = serde_json::from_slice(body).ok()?;
    Some(list.data.into_iter().map(|model| model.id.into()).collect())
}

/// First whole number among the members of that name, at any depth.
fn whole_member(body: &[u8], member: &str) -> Option<u64> {
    fn find(value: &serde_json::Value, member: &str) -> Option<u64> {
        match value {
            serde_json::Value::Object(members) => members
                .get(member)
                .and_then(serde_json::Value::as_u64)
                .or_else(|| members.values().find_map(|value| find(value, member))),
            serde_json::Value::Array(values) => values.iter().find_map(|value| find(value, member)),
            _ => None,
        }
    }
    find(&serde_json::from_slice(body).ok()?, member)
}

#[cfg(test)]
mod tests;
