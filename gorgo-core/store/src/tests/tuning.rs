//! The state from which a tuner continues after a restart.

use super::{StoreFixture, generation, history};
use crate::LastTuning;

#[tokio::test]
async fn tune_the_newest_state_and_the_highest_number_come_back_and_open_generations_are_cut() {
    let bench = StoreFixture::new();
    bench.write(history()).await;
    assert_eq!(generation().len(), 6);
    let info = super::run_info().policies[0].clone();
    let mut store = crate::open(&bench.path()).await.unwrap();
    let last = store.last_tuning(&info).await.unwrap();
    assert_eq!(last, Some(LastTuning { state: Some("{\"version\":1}".to_owned()), generation: 2 }));
    let mut other = info.clone();
    other.text.push_str("# another policy");
    assert_eq!(store.last_tuning(&other).await.unwrap(), None);
    store.close().await.unwrap();
    bench.write([]).await;
    assert_eq!(bench.number("SELECT count(*) FROM generations WHERE verdict = 'cut' AND generation_id = 2").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM generations WHERE verdict = 'rejected'").await, 1);
    assert_eq!(bench.number("SELECT count(*) FROM alarms WHERE to_us IS NULL").await, 0);
}

/// The data dictionary's query computes every statistic of every generation again from its decisions; on the history of
/// a simulated run in which a replica goes down, so that some requests fail.
#[tokio::test]
async fn tune_scores_follow_from_their_decisions_by_one_query() {
    use sqlx::Row;

    let query = include_str!("../../../../migrations/README.md").split("```sql\n").skip(1);
    let query = query.map(|rest| rest.split("```").next().unwrap()).find(|query| query.contains("AS again, ")).unwrap();
    for objective in ["ttft-e2e", "ttft-p95"] {
        let (run, records) = simulated(objective);
        let bench = StoreFixture::new();
        let (sink, writer) = bench.begin(&run).await;
        bench.spawn(writer);
        for (number, record) in records.into_iter().enumerate() {
            gorgo_observe::RecordListener::record(&sink, record);
            if number % 1_000 == 999 {
                sink.flush().await.unwrap();
            }
        }
        sink.finish(gorgo_routing::model::UnixMicros(super::START.0 + 1)).await.unwrap();
        let mut connection = bench.connect().await;
        let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
        let mut statistics = std::collections::BTreeSet::new();
        for row in &rows {
            let (again, stored): (f64, f64) = (row.get("again"), row.get("stored"));
            let statistic: String = row.get("statistic");
            assert!((again - stored).abs() <= 1e-5 * stored.abs().max(1.0), "{statistic}: {again} is not {stored}");
            statistics.insert(statistic);
        }
        let generations = bench.number("SELECT count(DISTINCT generation_id) FROM generation_scores").await;
        println!("{objective}: {} figures of {generations} generations follow, {statistics:?}", rows.len());
        // 13 statistics, two geometric means, and the score where it is made of them.
        let each = 15 + usize::from(objective == "ttft-e2e");
        assert!(generations >= 2 && statistics.len() == each, "{generations}, {statistics:?}");
        assert_eq!(rows.len(), usize::try_from(generations).unwrap() * 2 * each);
        let failed = "SELECT count(*) FROM generation_scores WHERE statistic = 'error_share' AND value > 0";
        println!("cohorts with failures: {}", bench.number(failed).await);
        if objective == "ttft-p95" {
            let own = "SELECT count(*) FROM generation_scores s JOIN generation_scores p USING (policy_id, generation_id, arm) \
                       WHERE s.statistic = 'score' AND p.statistic = 'ttft_p95' AND s.value <> p.value";
            assert_eq!(bench.number(own).await, 0, "the score is that statistic");
        }
    }
}

/// Records of a simulated run of the paper's policy, tuned for `objective`, and a description of the run.
fn simulated(objective: &str) -> (crate::RunInfo, Vec<gorgo_routing::model::StoreRecord>) {
    use gorgo_lab::sim::world::{
        DecisionMaker, START_TIME, Scenario, SimulatedWorkload, SimulationSetup, replica_specs, simulate_recorded,
    };
    use gorgo_lab::trace::{ShapeOptions, read, shape};
    use gorgo_routing::config::{FailoverConfig, IndexConfig, ProbeConfig, ReplicaConfig, ScrapeConfig, parse_toml};
    use gorgo_routing::model::{ConfigValue, PolicyBuildId, Replica};
    use gorgo_routing::policy::{KindRegistry, build};

    let section = |name: &str, rtt_ms: f64| {
        toml::from_str::<ReplicaConfig>(&format!(
            "name = \"{name}\"\nengine = \"simulated\"\nsimulated = {{ rtt_ms = {rtt_ms:.1} }}"
        ))
        .unwrap()
    };
    let members = replica_specs(&[section("near", 37.0), section("middle", 279.0), section("far", 456.0)]).unwrap();
    let fleet: Vec<Replica> = members.iter().map(|member| member.replica.clone()).collect();
    let text = format!(
        "[policy.tuned]\nunit = \"raw\"\n[[policy.tuned.term]]\nkind = \"rtt\"\n\
         weight = {{ init = 0.276, min = 0.05, max = 2.0, tune = true }}\n[[policy.tuned.term]]\nkind = \"prefill\"\n\
         [[policy.tuned.term]]\nkind = \"queue\"\nweight = {{ init = 0.1, min = 0.05, max = 0.5, tune = true }}\n\
         [policy.tuned.tune]\nobjective = \"{objective}\"\n"
    );
    let Some(ConfigValue::Table(tables)) = parse_toml(&text).unwrap().get("policy").cloned() else {
        panic!("no policies")
    };
    let policies = build(&KindRegistry::built_in(), &tables, "tuned", &fleet).policies.unwrap();
    let id = policies.default;
    let info = |policy: &std::sync::Arc<gorgo_routing::policy::Policy>| crate::PolicyInfo {
        name: policy.name.to_string(),
        text: policy.text.clone(),
        terms: policy
            .terms
            .iter()
            .map(|term| crate::TermInfo {
                name: term.name.to_string(),
                kind: term.kind.to_owned(),
                unit: term.unit.name().to_owned(),
                plugin_sha256: None,
            })
            .collect(),
        weights: policy.weights(),
    };
    let run = crate::RunInfo {
        started: START_TIME,
        default_policy: PolicyBuildId(id.0),
        policies: policies.list.iter().map(info).collect(),
        ..super::run_info()
    };
    let mut trace = String::new();
    for number in 0..2_500_usize {
        let (conversation, turn) = (number % 17, number / 17);
        let blocks = if number % 3 == 0 { 1 } else { 4 + turn % 30 };
        let ids: Vec<usize> = (0..blocks).map(|block| conversation * 1_000 + block + 1).collect();
        trace += &format!(
            "{{\"timestamp\":{},\"input_length\":{},\"output_length\":{},\"hash_ids\":{ids:?}}}\n",
            number * 333,
            blocks * 256,
            20 + number % 90,
        );
    }
    let workload = SimulatedWorkload::new(shape(read(trace.as_bytes(), None).unwrap(), &ShapeOptions::default()));
    let mut storm = String::new();
    for at_s in [120, 260, 400, 540, 680] {
        // Short: running requests fail, but no probe marks the replica as down, which would cut the trial.
        storm += &format!("[[fault]]\nat_s = {at_s}\nreplica = \"near\"\nkind = \"restart\"\n");
    }
    let scenario = Scenario::parse(&storm, &["near", "middle", "far"], &["tuned"]).unwrap();
    let setup = SimulationSetup {
        workload: &workload,
        replicas: &members,
        scenario: &scenario,
        max_in_flight: Some(64),
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig { interval_ms: 1_000_000, ..ScrapeConfig::default() },
        failover: FailoverConfig { max_attempts: 1, ..FailoverConfig::default() },
    };
    let mut records = Vec::new();
    simulate_recorded(&setup, DecisionMaker::Policy(policies, id), 4, &mut |record| records.push(record)).unwrap();
    (run, records)
}
