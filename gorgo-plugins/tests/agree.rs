//! The built-in term `queue` and the same in C agree bit for bit.

use gorgo_core::model::Value;
use gorgo_plugins::conform::invented;
use gorgo_plugins::host::Conduct;

use crate::bench::{c, decided, policies, root, table, term, tested, text, with_terms};

#[test]
fn a_term_and_its_plugin_are_equal_in_every_bit() {
    let folder = tempfile::tempdir().unwrap();
    let library = c(&root().join("gorgo-plugins/examples/scorer_c/queue.c"), folder.path(), &[]);
    let weight = || ("weight", Value::Float(0.037));
    let terms = vec![term(&library, &[weight()]), table(&[("kind", text("queue")), weight()])];
    let (policies, _) = policies(with_terms(terms), Conduct::Enforced).unwrap();
    let terms = &tested(&policies).terms;
    assert_eq!((&*terms[0].name, &*terms[1].name), ("queue-c", "queue"));
    assert_eq!(terms[0].unit, terms[1].unit);
    for replicas in 1..=64 {
        let decision = decided(&policies, &invented(replicas)).unwrap();
        for columns in [&decision.signals, &decision.costs] {
            assert_eq!(columns.len(), usize::from(replicas) * 2);
            assert!(columns.chunks(2).all(|two| two[0].to_bits() == two[1].to_bits()), "{columns:?}");
        }
        assert!(decision.signals.iter().any(|signal| *signal > 0.0));
    }
}
