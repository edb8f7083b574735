//! The replay as an HTML page: latencies of all requests and of long prompts, and the traffic of each replica.

use gorgo_lab::trace::{LatencyQuantiles, LatencySummary, SHORT_INPUT_TOKENS};

use super::ReplayReport;
use crate::report::number::{count, millis, percent};
use crate::report::page::{HtmlPage, PagePlot, PageTable, file_name};
use crate::report::plot::{DotPlot, DotRow, MeanDeviation};

/// Selects one latency of a set.
type QuantileGetter = fn(&LatencySummary) -> &LatencyQuantiles;

const fn exact(value: Option<f64>) -> Option<MeanDeviation> {
    match value {
        Some(mean) => Some(MeanDeviation { mean, deviation: None }),
        None => None,
    }
}

fn quantiles(name: String, of: &LatencyQuantiles) -> DotRow {
    DotRow { name, marked: false, marks: vec![exact(of.p50), exact(of.p95), exact(of.p99)] }
}

impl ReplayReport {
    /// The page; `command` is the command line in a form that can be shown to others.
    pub(in crate::cmd::lab::replay) fn html(&self, command: &str) -> String {
        let summary = &self.summary;
        let long = format!("{SHORT_INPUT_TOKENS} tokens and more");
        let sets = [("all", &summary.all), (long.as_str(), &summary.long)];
        let mut latency_rows = Vec::new();
        let mut cells = Vec::new();
        let kinds: [(&str, QuantileGetter); 3] =
            [("TTFT", |set| &set.ttft), ("E2E", |set| &set.e2e), ("ITL", |set| &set.itl)];
        // Plot and table are filled together, so that their rows match.
        for (kind, of) in kinds {
            for (name, set) in sets {
                let all = of(set);
                latency_rows.push(quantiles(format!("{kind}, {name}"), all));
                let numbers = [all.p50, all.p95, all.p99, all.mean, all.max].map(millis);
                cells.push([format!("{kind}, {name}"), count(all.count)].into_iter().chain(numbers).collect());
            }
        }
        let header = ["ms", "measured", "p50", "p95", "p99", "mean", "max"].map(str::to_owned).to_vec();
        let latencies = PageTable { title: "Latencies".to_owned(), header, rows: cells, ..PageTable::default() };
        let mut page = HtmlPage {
            title: format!("gorgo replay: {}, {}", self.label, file_name(&self.trace)),
            facts: self.facts(command),
            plots: vec![PagePlot {
                title: "Latencies".to_owned(),
                note:
                    "Of requests that succeeded; one run, so there is no spread over seeds. 95 % intervals are below."
                        .to_owned(),
                svg: plot(&["p50", "p95", "p99"], &latency_rows, "ms", false),
            }],
            tables: vec![latencies],
            notes: self.left_out().into_iter().chain(self.errors()).collect(),
        };
        let first = self.spread().into_iter().chain([self.slip()]).chain(self.fallbacks());
        // Warnings about the result itself come before the list of omissions.
        page.notes.splice(0..0, first);
        // A server that is not gorgo does not say which replica answered.
        if !summary.replicas.is_empty() {
            self.add_replicas(&mut page);
        }
        page.html()
    }

    fn add_replicas(&self, page: &mut HtmlPage) {
        let replicas = &self.summary.replicas;
        let times =
            replicas.iter().map(|replica| quantiles(replica.name.to_string(), &replica.ttft)).collect::<Vec<_>>();
        let shares = replicas.iter().map(|replica| DotRow {
            name: replica.name.to_string(),
            marked: false,
            marks: vec![exact(replica.hit_rate), exact(Some(replica.share))],
        });
        page.plots.push(PagePlot {
            title: "Time to first token by replica".to_owned(),
            note: "As the client saw it, round trips included.".to_owned(),
            svg: plot(&["p50", "p95", "p99"], &times, "TTFT, ms", false),
        });
        page.plots.push(PagePlot {
            title: "Cache hits and traffic by replica".to_owned(),
            note: "Share of prompt tokens found cached at the replica, and its share of requests.".to_owned(),
            svg: plot(&["hit rate", "share"], &shares.collect::<Vec<_>>(), "share", true),
        });
        let header = ["replica", "requests", "share", "hit rate", "TTFT p50 ms", "TTFT p95 ms"];
        let rows = replicas.iter().map(|replica| {
            let latencies = [replica.ttft.p50, replica.ttft.p95].map(millis);
            let shares = [percent(Some(replica.share)), percent(replica.hit_rate)];
            [replica.name.to_string(), count(replica.requests)].into_iter().chain(shares).chain(latencies).collect()
        });
        page.tables.push(PageTable {
            title: "Replicas".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: rows.collect(),
            ..PageTable::default()
        });
    }

    fn facts(&self, command: &str) -> Vec<(String, String)> {
        let summary = &self.summary;
        let facts = [
            ("trace", file_name(&self.trace)),
            ("to", self.to.clone()),
            ("model", self.model.clone()),
            ("pace", self.pace()),
            ("seed", self.seed.to_string()),
            ("hit rate", percent(summary.hit_rate)),
            ("busiest share", percent(summary.busiest_share)),
            ("failed", format!("{} of {}", count(summary.errors), count(summary.requests))),
            ("gorgo", env!("CARGO_PKG_VERSION").to_owned()),
            ("command", command.to_owned()),
        ];
        facts.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

fn plot(legend: &[&str], rows: &[DotRow], title: &str, shares: bool) -> String {
    DotPlot { legend, rows, title, shares }.svg()
}
