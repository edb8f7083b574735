//! Operation of a running router: drain, pin, inspect; and a page in a browser must not be able to do so.

use std::process::Output;

use crate::program::{Serve, get, gorgo, post, request};
use crate::serve::{number, trace};

const BODY: &str = r#"{"model":"sim","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}"#;

fn ctl(serve: &Serve, deed: &[&str]) -> Output {
    gorgo().arg("ctl").args(deed).args(["--admin", &format!("127.0.0.1:{}", serve.admin)]).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn answered_by(serve: &Serve) -> String {
    let (status, answer) = post(serve.port, "/v1/chat/completions", BODY);
    assert_eq!(status, 200, "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("x-gorgo-replica: "));
    line.unwrap().to_owned()
}

#[tokio::test]
async fn a_replica_is_drained_and_let_back_while_requests_run() {
    let mut serve = Serve::start("default_policy = \"round-robin\"", "");
    let done = ctl(&serve, &["drain", "near"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(said(&done).starts_with("replica near is drained: nothing new goes there; 0 requests"), "{}", said(&done));
    for _ in 0..6 {
        assert_ne!(answered_by(&serve), "near");
    }
    let (_, metrics) = get(serve.admin, "/metrics").unwrap();
    assert!(metrics.contains("gorgo_replica_available{replica=\"near\"} 0"), "{metrics}");
    let looked = said(&ctl(&serve, &["replicas"]));
    let replicas: serde_json::Value = serde_json::from_str(&looked).unwrap();
    let near = &replicas.as_array().unwrap()[0];
    assert_eq!((near["replica"].as_str(), near["draining"].as_bool()), (Some("near"), Some(true)), "{looked}");
    assert_eq!(ctl(&serve, &["resume", "near"]).status.code(), Some(0));
    let again: Vec<String> = (0..6).map(|_| answered_by(&serve)).collect();
    assert!(again.contains(&"near".to_owned()), "{again:?}");

    let stranger = ctl(&serve, &["drain", "nowhere"]);
    assert_eq!(stranger.status.code(), Some(1));
    assert_eq!(said(&stranger), "gorgo: no replica `nowhere`; known: near, middle, far\n");
    assert_eq!(get(serve.admin, "/replicas/near/drain").unwrap().0, 405);
    let page = "POST /replicas/near/drain HTTP/1.1\r\nhost: a\r\norigin: http://evil.example\r\ncontent-length: 0\r\n\
                connection: close\r\n\r\n";
    assert_eq!(request(serve.admin, page).unwrap().0, 403, "a page in a browser may not");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    let events = "select count(*) from v_events where replica = 'near' and kind = 'replica-draining'";
    assert_eq!(number(&serve.database(), events).await, 1);
}

#[tokio::test]
async fn a_pinned_policy_serves_at_once_and_after_a_restart_until_it_is_unpinned() {
    let by = |policy: &str| format!("select count(*) from v_requests where policy = '{policy}'");
    let mut serve = Serve::start("default_policy = \"round-robin\"", "");
    answered_by(&serve);
    let slip = ctl(&serve, &["pin", "least-laod"]);
    assert_eq!(
        (slip.status.code(), said(&slip)),
        (Some(1), "gorgo: no policy `least-laod`; did you mean `least-load`?\n".to_owned())
    );
    let done = ctl(&serve, &["pin", "least-load"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    answered_by(&serve);
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    assert_eq!(number(&serve.database(), &by("round-robin")).await, 1);
    assert_eq!(number(&serve.database(), &by("least-load")).await, 1);

    let folder = std::mem::replace(&mut serve.folder, tempfile::tempdir().unwrap());
    let mut next = Serve::start_in(folder, "default_policy = \"round-robin\"", "");
    assert!(next.log().contains("an earlier run pinned this policy"), "{}", next.log());
    answered_by(&next);
    let shown: serde_json::Value = serde_json::from_str(&said(&ctl(&next, &["policy"]))).unwrap();
    let names = ["serves", "default", "pinned"].map(|key| shown[key].as_str().unwrap_or_default().to_owned());
    assert_eq!(names, ["least-load", "round-robin", "least-load"]);
    assert_eq!(ctl(&next, &["unpin"]).status.code(), Some(0));
    answered_by(&next);
    assert_eq!(next.stop().code(), Some(0), "{}", next.log());
    assert_eq!(number(&next.database(), &by("least-load")).await, 2);
    assert_eq!(number(&next.database(), &by("round-robin")).await, 2);
    let gone = ctl(&next, &["policy"]);
    assert_eq!(gone.status.code(), Some(69), "{}", said(&gone));
}

#[test]
fn what_a_tuner_tries_can_be_looked_at() {
    let mut serve = Serve::start("default_policy = \"gorgo-tuned\"", "");
    let shown: serde_json::Value = serde_json::from_str(&said(&ctl(&serve, &["tuners"]))).unwrap();
    let tuner = shown.as_array().unwrap().iter().find(|tuner| tuner["policy"] == "gorgo-tuned").unwrap();
    assert_eq!(tuner["serves"], true);
    assert_eq!(tuner["incumbent"]["weights"]["rtt"], 0.276);
    assert_eq!((tuner["on_trial"].is_null(), tuner["message"].as_str()), (true, Some("warming up")));
    assert_eq!(serve.stop().code(), Some(0));
}

/// Half of the decisions are made by chance, so the results of the other weights are known, and the estimate must find
/// them.
const WEIGHED: &str = r#"
[policy.weighed]
unit = "raw"
picker = { kind = "softmin", temperature = 4.0 }
exploration = 0.3
[[policy.weighed.term]]
kind = "rtt"
weight = 0.0
[[policy.weighed.term]]
kind = "inflight"
weight = 1.0
"#;

#[test]
fn other_weights_are_estimated_from_what_chance_did() {
    let mut serve = Serve::start("default_policy = \"weighed\"", WEIGHED);
    let report = serve.replay(&trace(serve.folder.path(), 1_500), &["--max-in-flight", "8"]);
    assert_eq!(report["errors"].as_u64(), Some(0), "{report}");
    assert_eq!(serve.stop().code(), Some(0), "{}", serve.log());
    let database = serve.database();
    let whatif = |flags: &[&str]| gorgo().arg("whatif").arg(&database).args(flags).output().unwrap();
    // The same weights: every request counts as it was.
    let same = whatif(&["--weight", "rtt=0"]);
    assert_eq!(same.status.code(), Some(0), "{}", said(&same));
    let text = said(&same);
    assert!(text.contains("1,500 decisions; 1,500 involved chance; effective sample size 1500;"), "{text}");
    // Near replicas preferred: first tokens would have come sooner, and chance sent enough requests there to show it.
    let near = whatif(&["--policy", "weighed", "--weight", "rtt=1"]);
    assert_eq!(near.status.code(), Some(0), "{}", said(&near));
    let text = said(&near);
    let line = text.lines().find(|line| line.contains("TTFT mean ms")).unwrap();
    let figures: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(figures.len() == 4 && figures[2] < figures[0], "served, estimated: {text}");
    let slip = whatif(&["--weight", "rt=1"]);
    assert_eq!(
        (slip.status.code(), said(&slip)),
        (Some(2), "gorgo: policy weighed has no term `rt`; did you mean `rtt`?\n".to_owned())
    );
    let nobody = whatif(&["--policy", "nobody", "--weight", "rtt=1"]);
    assert_eq!(
        (nobody.status.code(), said(&nobody)),
        (Some(1), "gorgo: the history has no decision of policy nobody\n".to_owned())
    );
}
