//! Metrics for Prometheus. Histograms of replicas are looked up by index, not by label; gauges are read from the facts
//! at each scrape, so that they cannot drift from the values that decisions use.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use gorgo_routing::model::{
    AdmissionRecord, AlarmRecord, ErrorClass, KvEventStats, OutcomeRecord, PluginCounts, RouteLabels,
};

/// Load of one replica, as the gauges show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// The replica's name.
    pub replica: Arc<str>,
    /// Requests of this router in flight there.
    pub inflight: u64,
    /// Their prompt tokens, until they complete.
    pub queued_tokens: u64,
    /// Their uncached prompt tokens, until the first token.
    pub queued_uncached_tokens: u64,
    /// True if it takes new requests.
    pub available: bool,
    /// Requests that wait at the admission gate for it.
    pub waiting: u64,
}

/// Counters of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreState {
    /// Rows that were dropped since the start.
    pub dropped_rows: u64,
    /// Records that wait to be written.
    pub queued_records: u64,
}

/// Source of the gauges, read at each scrape.
pub trait GaugeSource: Send + Sync + fmt::Debug {
    /// Load per replica.
    fn loads(&self) -> Vec<ReplicaLoad>;
    /// The store's counters.
    fn store(&self) -> StoreState;
    /// Hint headers that could not be parsed.
    fn unread_hints(&self) -> u64;
    /// Counters of the cache events, of replicas with a subscription.
    fn caches(&self) -> Vec<KvEventStats> {
        Vec::new()
    }
    /// The plugins' counters; empty if no policy has a plugin.
    fn plugins(&self) -> Vec<PluginCounts> {
        Vec::new()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: &'static str,
    replica: Arc<str>,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaLabel {
    replica: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabel {
    plugin: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlarmLabel {
    alarm: String,
}

/// The router's metrics.
#[derive(Debug)]
pub struct RouterMetrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    alarms: Family<AlarmLabel, Gauge>,
    per_replica: Vec<ReplicaHistograms>,
}

#[derive(Debug)]
struct ReplicaHistograms {
    name: Arc<str>,
    ttft: Histogram,
    e2e: Histogram,
    admission_wait: Histogram,
}

/// Upper bounds of the TTFT and E2E histograms, seconds: from a warm local hit to the first-byte limit.
const DURATION_BUCKETS: [f64; 14] = [0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 120.0];

impl RouterMetrics {
    /// Registers the metrics of a fleet of these replicas, by id.
    #[must_use]
    pub fn new(replicas: &[Arc<str>], gauges: Arc<dyn GaugeSource>) -> Self {
        let mut registry = Registry::default();
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register(
            "gorgo_requests",
            "Requests that ended, by API path, replica (none: refused) and status (2xx, 4xx, 5xx, broken, client-gone)",
            requests.clone(),
        );
        let alarms = Family::<AlarmLabel, Gauge>::default();
        // Present before anything goes wrong, so that an alerting rule on it can be written and tested.
        alarms.get_or_create(&AlarmLabel { alarm: "reward-hacking".to_owned() }).set(0);
        registry.register("gorgo_tuner_alarm", "1 while a tuner's alarm is on; kinds as in v_alarms", alarms.clone());
        // The encoder appends the unit: `gorgo_ttft_seconds`.
        let ttft = Family::<ReplicaLabel, Histogram>::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        registry.register_with_unit(
            "gorgo_ttft",
            "Time from a request's arrival to its first generated content",
            Unit::Seconds,
            ttft.clone(),
        );
        // Separate histograms, not one with a label: a failed request may have a first token, but no meaningful end.
        let e2e = Family::<ReplicaLabel, Histogram>::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        registry.register_with_unit(
            "gorgo_e2e",
            "Time from a request's arrival to its last byte, of requests that ended well",
            Unit::Seconds,
            e2e.clone(),
        );
        let hold = Family::<ReplicaLabel, Histogram>::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        registry.register_with_unit(
            "gorgo_admission_wait",
            "Time that requests waited at the admission gate for a replica, however it ended; without those that did not wait",
            Unit::Seconds,
            hold.clone(),
        );
        // Every series exists from the start, at zero: `rate()` needs a sample before the first increase.
        let per_replica = replicas
            .iter()
            .map(|name| {
                let label = ReplicaLabel { replica: Arc::clone(name) };
                ReplicaHistograms {
                    name: Arc::clone(name),
                    // Owned handles: observing a time then takes no lock on the family and no lookup by label.
                    ttft: ttft.get_or_create_owned(&label),
                    e2e: e2e.get_or_create_owned(&label),
                    admission_wait: hold.get_or_create_owned(&label),
                }
            })
            .collect();
        // A collector instead of gauges that are set: nothing has to remember to update them.
        registry.register_collector(Box::new(GaugeCollector { gauges }));
        Self { registry, requests, alarms, per_replica }
    }

    /// Counts a request that ended.
    pub fn record_outcome(&self, route: RouteLabels, outcome: &OutcomeRecord) {
        let durations = route.replica.and_then(|replica| self.per_replica.get(replica.index()));
        let status = match (outcome.error, outcome.status) {
            // First: a client may leave after a status was sent, and that says nothing against the replica.
            (Some(ErrorClass::ClientGone), _) => "client-gone",
            (_, Some(status)) if status >= 500 => "5xx",
            (_, Some(status)) if status >= 400 => "4xx",
            (Some(_), _) | (None, None) => "broken",
            (None, Some(_)) => "2xx",
        };
        // A refused request had no replica. The label needs a value: an empty one means no label in Prometheus.
        let replica = durations.map_or_else(|| Arc::from("none"), |durations| Arc::clone(&durations.name));
        self.requests.get_or_create(&RequestLabels { path: route.path.name(), replica, status }).inc();
        if let Some(durations) = durations {
            // A first token counts even if the request failed later; the length of a failed answer means nothing.
            if let Some(ttft_us) = outcome.ttft_us {
                durations.ttft.observe(seconds(ttft_us));
            }
            if outcome.error.is_none() {
                durations.e2e.observe(seconds(outcome.e2e_us));
            }
        }
    }

    /// Records that a tuner's alarm went on or off.
    pub fn record_alarm(&self, alarm: &AlarmRecord) {
        self.alarms.get_or_create(&AlarmLabel { alarm: alarm.kind.clone() }).set(i64::from(!alarm.cleared));
    }

    /// Counts a request that waited at the gate.
    pub fn record_admission(&self, hold: &AdmissionRecord) {
        // A replica that is not in the fleet cannot occur; if it did, a missing sample is better than a panic.
        if let Some(durations) = self.per_replica.get(hold.replica.index()) {
            durations.admission_wait.observe(seconds(hold.held_us));
        }
    }

    /// The page for `GET /metrics`.
    ///
    /// # Errors
    /// None in practice: the page is written to memory.
    pub fn page(&self) -> Result<String, fmt::Error> {
        // A fleet of a few replicas fits without growing.
        let mut page = String::with_capacity(8 << 10);
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

/// Converts `micros` to seconds.
#[expect(clippy::cast_precision_loss, reason = "a duration in µs stays far below 2^53")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

/// Collector that reads the gauges at a scrape.
#[derive(Debug)]
struct GaugeCollector {
    gauges: Arc<dyn GaugeSource>,
}

impl Collector for GaugeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // Once per scrape, so that all families of one page show the same moment.
        let loads = self.gauges.loads();
        let mut family = |name: &str, help: &str, value: &dyn Fn(&ReplicaLoad) -> u64| -> Result<(), fmt::Error> {
            // Only its type is used, for the family's head; the values follow.
            let gauge = ConstGauge::new(0_i64);
            let mut metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            for load in &loads {
                let label = ReplicaLabel { replica: Arc::clone(&load.replica) };
                // OpenMetrics gauges are signed here; no count comes near the limit.
                let value = i64::try_from(value(load)).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(metric.encode_family(&label)?)?;
            }
            Ok(())
        };
        family("gorgo_inflight_requests", "Requests of this router in flight at the replica", &|load| load.inflight)?;
        family("gorgo_queued_tokens", "Prompt tokens of requests in flight at the replica", &|load| {
            load.queued_tokens
        })?;
        family(
            "gorgo_queued_uncached_tokens",
            "Uncached prompt tokens of requests in flight at the replica without a first token",
            &|load| load.queued_uncached_tokens,
        )?;
        family("gorgo_waiting_requests", "Requests that wait at the admission gate for the replica", &|load| {
            load.waiting
        })?;
        family("gorgo_replica_available", "1 if the replica takes new requests", &|load| u64::from(load.available))?;
        let store = self.gauges.store();
        // Counters of other parts, read here instead of counted twice; the encoder appends `_total`.
        let dropped = ConstCounter::new(store.dropped_rows);
        let metric = encoder.encode_descriptor(
            "gorgo_store_dropped_rows",
            "Rows that never reached the history database",
            None,
            dropped.metric_type(),
        )?;
        dropped.encode(metric)?;
        let queued = ConstGauge::new(i64::try_from(store.queued_records).unwrap_or(i64::MAX));
        let metric = encoder.encode_descriptor(
            "gorgo_store_queued_records",
            "Records that wait to be written",
            None,
            queued.metric_type(),
        )?;
        queued.encode(metric)?;
        let unread = ConstCounter::new(self.gauges.unread_hints());
        let metric = encoder.encode_descriptor(
            "gorgo_unread_slo_headers",
            "Headers x-slo-ttft-ms that are not a number of ms above 0 and up to a day; they were ignored",
            None,
            unread.metric_type(),
        )?;
        unread.encode(metric)?;
        self.caches(&mut encoder)?;
        self.plugins(&mut encoder)
    }
}

impl GaugeCollector {
    /// Encodes one series per replica with a subscription; no family at all if there is none.
    fn caches(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let caches = self.gauges.caches();
        // Otherwise the page would show heads of families that have no series.
        if caches.is_empty() {
            return Ok(());
        }
        let label = |cache: &KvEventStats| ReplicaLabel { replica: Arc::clone(&cache.replica) };
        let mut counter = |name: &str, help: &str, value: fn(&KvEventStats) -> u64| {
            let counter = ConstCounter::new(0_u64);
            let mut metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            for cache in &caches {
                ConstCounter::new(value(cache)).encode(metric.encode_family(&label(cache))?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        counter("gorgo_kv_event_batches", "Batches of cache events applied", |cache| cache.batches)?;
        counter("gorgo_kv_event_gaps", "Times that batches of cache events were missing", |cache| cache.gaps)?;
        counter("gorgo_kv_event_replays", "Times that a replay of missed cache events was requested", |cache| {
            cache.replays
        })?;
        counter("gorgo_kv_event_bad_frames", "Frames that could not be parsed as cache events", |cache| {
            cache.bad_frames
        })?;
        counter("gorgo_kv_event_unknown", "Cache events of an unknown kind", |cache| cache.unknown_events)?;
        counter("gorgo_kv_prompts_mapped", "Prompts whose tokens the engine reported", |cache| cache.mapped)?;
        counter("gorgo_kv_prompts_unmapped", "Prompts whose tokens are unknown", |cache| cache.unmapped)?;
        let mut gauge = |name: &str, help: &str, value: fn(&KvEventStats) -> u64| {
            let gauge = ConstGauge::new(0_i64);
            let mut metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            for cache in &caches {
                let value = i64::try_from(value(cache)).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(metric.encode_family(&label(cache))?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        gauge("gorgo_kv_events_connected", "1 if the publisher of cache events is connected", |cache| {
            u64::from(cache.connected)
        })?;
        gauge("gorgo_kv_events_exact", "1 if everything the engine holds is known", |cache| u64::from(cache.exact))?;
        gauge(
            "gorgo_kv_events_requests_since_batch",
            "Requests that the engine answered since its last batch of cache events",
            |cache| cache.answers_since_batch,
        )
    }

    /// Encodes one series per plugin and counter; no family at all if there is no plugin.
    fn plugins(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let plugins = self.gauges.plugins();
        if plugins.is_empty() {
            return Ok(());
        }
        let mut family = |name: &str, help: &str, unit: Option<&Unit>, value: &dyn Fn(&PluginCounts) -> f64| {
            let counter = ConstCounter::new(0.0);
            let mut metric = encoder.encode_descriptor(name, help, unit, counter.metric_type())?;
            for plugin in &plugins {
                let label = PluginLabel { plugin: Arc::clone(&plugin.plugin) };
                ConstCounter::new(value(plugin)).encode(metric.encode_family(&label)?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        #[expect(clippy::cast_precision_loss, reason = "calls stay far below 2^53")]
        {
            family("gorgo_plugin_calls", "Calls of the plugin", None, &|plugin| plugin.calls as f64)?;
            family("gorgo_plugin_failures", "Calls whose result could not be used", None, &|plugin| {
                plugin.failures as f64
            })?;
            family("gorgo_plugin_over_budget", "Measured calls over the time budget", None, &|plugin| {
                plugin.over_budget as f64
            })?;
        }
        // The encoder appends the unit and `_total`: `gorgo_plugin_seconds_total`.
        family("gorgo_plugin", "Time spent in the plugin", Some(&Unit::Seconds), &|plugin| plugin.seconds)?;
        let gauge = ConstGauge::new(0_i64);
        let (name, help) =
            ("gorgo_plugin_quarantined", "1 if the plugin is quarantined after failures and no longer called");
        let mut metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        for plugin in &plugins {
            let label = PluginLabel { plugin: Arc::clone(&plugin.plugin) };
            ConstGauge::new(i64::from(plugin.quarantined)).encode(metric.encode_family(&label)?)?;
        }
        Ok(())
    }
}

/// All metric names, as the README lists them; a test compares both.
pub const METRICS: &[&str] = &[
    "gorgo_requests_total",
    "gorgo_ttft_seconds",
    "gorgo_e2e_seconds",
    "gorgo_inflight_requests",
    "gorgo_queued_tokens",
    "gorgo_queued_uncached_tokens",
    "gorgo_waiting_requests",
    "gorgo_admission_wait_seconds",
    "gorgo_replica_available",
    "gorgo_store_dropped_rows_total",
    "gorgo_store_queued_records",
    "gorgo_unread_slo_headers_total",
    "gorgo_tuner_alarm",
    "gorgo_kv_event_batches_total",
    "gorgo_kv_event_gaps_total",
    "gorgo_kv_event_replays_total",
    "gorgo_kv_event_bad_frames_total",
    "gorgo_kv_event_unknown_total",
    "gorgo_kv_prompts_mapped_total",
    "gorgo_kv_prompts_unmapped_total",
    "gorgo_kv_events_connected",
    "gorgo_kv_events_exact",
    "gorgo_kv_events_requests_since_batch",
    "gorgo_plugin_calls_total",
    "gorgo_plugin_failures_total",
    "gorgo_plugin_over_budget_total",
    "gorgo_plugin_seconds_total",
    "gorgo_plugin_quarantined",
];

#[cfg(test)]
mod tests {
    use super::*;
    use gorgo_routing::model::{AdmissionEnd, ApiPath, DecisionId, ReplicaId, UnixMicros};

    #[derive(Debug)]
    struct FixedGauges;

    impl GaugeSource for FixedGauges {
        fn loads(&self) -> Vec<ReplicaLoad> {
            vec![ReplicaLoad {
                replica: Arc::from("a"),
                inflight: 2,
                queued_tokens: 30,
                queued_uncached_tokens: 7,
                available: true,
                waiting: 5,
            }]
        }

        fn store(&self) -> StoreState {
            StoreState { dropped_rows: 3, queued_records: 4 }
        }

        fn unread_hints(&self) -> u64 {
            6
        }

        fn caches(&self) -> Vec<KvEventStats> {
            let replica = Arc::from("a");
            vec![KvEventStats {
                replica,
                exact: true,
                batches: 41,
                gaps: 6,
                answers_since_batch: 8,
                ..KvEventStats::default()
            }]
        }

        fn plugins(&self) -> Vec<PluginCounts> {
            let plugin = Arc::from("carbon");
            vec![PluginCounts { plugin, calls: 9, failures: 2, over_budget: 1, seconds: 0.5, quarantined: true }]
        }
    }

    #[test]
    fn the_page_has_every_metric_that_is_documented() {
        let meter = RouterMetrics::new(&[Arc::from("a")], Arc::new(FixedGauges));
        let route = RouteLabels { path: ApiPath::Embeddings, replica: Some(ReplicaId(0)) };
        let outcome = OutcomeRecord {
            decision: DecisionId(1),
            status: Some(200),
            error: None,
            ttft_us: Some(120_000),
            first_byte_us: Some(120_000),
            e2e_us: 900_000,
            itl_mean_us: None,
            itl_p99_us: None,
            itl_counts: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
            predicted_ttft_us: None,
            predicted_cached_tokens: None,
        };
        meter.record_outcome(route, &outcome);
        meter.record_admission(&AdmissionRecord {
            decision: DecisionId(1),
            attempt: 1,
            replica: ReplicaId(0),
            moves: 0,
            held_us: 700_000,
            ended: AdmissionEnd::Dispatched,
        });
        assert!(meter.page().unwrap().contains("gorgo_tuner_alarm{alarm=\"reward-hacking\"} 0"));
        let kind = "reward-hacking".to_owned();
        meter.record_alarm(&AlarmRecord { at: UnixMicros(0), kind, value: Some(1.3), cleared: false });
        let page = meter.page().unwrap();
        assert!(page.contains("gorgo_tuner_alarm{alarm=\"reward-hacking\"} 1"), "{page}");
        for name in METRICS {
            assert!(page.contains(&format!("\n{name}")), "{name} is missing in\n{page}");
        }
        assert!(page.contains("gorgo_inflight_requests{replica=\"a\"} 2"), "{page}");
        assert!(page.contains("gorgo_queued_uncached_tokens{replica=\"a\"} 7"), "{page}");
        assert!(
            page.contains("gorgo_requests_total{path=\"/v1/embeddings\",replica=\"a\",status=\"2xx\"} 1"),
            "{page}"
        );
        assert!(page.contains("gorgo_waiting_requests{replica=\"a\"} 5"), "{page}");
        assert!(page.contains("gorgo_admission_wait_seconds_sum{replica=\"a\"} 0.7"), "{page}");
        assert!(page.contains("gorgo_store_dropped_rows_total 3"), "{page}");
        assert!(page.contains("gorgo_unread_slo_headers_total 6"), "{page}");
        assert!(page.contains("gorgo_kv_event_batches_total{replica=\"a\"} 41"), "{page}");
        assert!(page.contains("gorgo_kv_events_exact{replica=\"a\"} 1"), "{page}");
        assert!(page.contains("gorgo_kv_events_requests_since_batch{replica=\"a\"} 8"), "{page}");
        assert!(page.contains("gorgo_plugin_failures_total{plugin=\"carbon\"} 2"), "{page}");
        assert!(page.contains("gorgo_plugin_seconds_total{plugin=\"carbon\"} 0.5"), "{page}");
        assert!(page.contains("gorgo_plugin_quarantined{plugin=\"carbon\"} 1"), "{page}");
    }
}
