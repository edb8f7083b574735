//! The built-in term `queue`, its copy in C and its copy as an expression agree bit for bit.

use gorgo_plugins::conform::candidates;
use gorgo_plugins::host::QuarantineMode;
use gorgo_routing::model::ConfigValue;

use crate::bench::{c, decided, policies, root, table, term, tested, text, with_terms};

#[test]
fn a_term_its_plugin_and_its_expression_are_equal_in_every_bit() {
    let folder = tempfile::tempdir().unwrap();
    let library = c(&root().join("gorgo-plugins/examples/scorer_c/queue.c"), folder.path(), &[]);
    let weight = || ("weight", ConfigValue::Float(0.037));
    let expression =
        [("kind", text("expression")), ("unit", text("tokens")), ("signal", text("queued_uncached_tokens")), weight()];
    let built_in = [("kind", text("queue")), weight()];
    let terms = vec![term(&library, &[weight()]), table(&built_in), table(&expression)];
    let (policies, _) = policies(with_terms(terms), QuarantineMode::Enforced).unwrap();
    let terms = &tested(&policies).terms;
    let named: Vec<&str> = terms.iter().map(|term| &*term.name).collect();
    assert_eq!(named, ["queue-c", "queue", "expression"]);
    assert!(terms.iter().all(|term| term.unit == terms[1].unit));
    for replicas in 1..=64 {
        let decision = decided(&policies, &candidates(replicas)).unwrap();
        for columns in [&decision.signals, &decision.costs] {
            assert_eq!(columns.len(), usize::from(replicas) * 3);
            assert!(
                columns.chunks(3).all(|three| three.iter().all(|one| one.to_bits() == three[0].to_bits())),
                "{columns:?}"
            );
        }
        assert!(decision.signals.iter().any(|signal| *signal > 0.0));
    }
}
