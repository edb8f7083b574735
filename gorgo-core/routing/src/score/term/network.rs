//! Network cost of this request on the connection that it would get, ms: the round trip × how many of them it needs.
//!
//! One round trip if a warm connection's window takes the whole prompt; one more for each doubling that the window
//! still needs, and one more if the router has to dial first. Reads `rtt_ms` and `network_trips` (the data plane's
//! connections; TCP slow start, RFC 5681 section 3.1, and its restart after idle time, section 4.1). Where nothing is
//! known of the connections, as in `simulate`, whose links have no window, one round trip is assumed.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "network",
    unit: Some(Unit::Millis),
    summary: "round trip x the round trips that this request's bytes need on the connection that it would get",
    spreads: false,
    params: &[],
    build: |_, _| Ok(Box::new(NetworkTerm)),
};

#[derive(Debug)]
struct NetworkTerm;

impl CostTerm for NetworkTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::RTT.union(RequiredFacts::NETWORK)
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for ((out, rtt), trips) in out.iter_mut().zip(&candidates.rtt_ms).zip(&candidates.network_trips) {
            *out = rtt.map(|rtt| rtt * trips.unwrap_or(1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_replicas_pay_for_every_round_trip() {
        let mut candidates = Candidates::default();
        candidates.reset(4, 0);
        candidates.rtt_ms = vec![Some(37.0), Some(279.0), None, Some(456.0)];
        candidates.network_trips = vec![Some(1.0), Some(4.0), Some(2.0), None];
        let mut out = vec![None; 4];
        let request = RequestView {
            prompt_tokens: 1,
            max_tokens: None,
            body_bytes: 4,
            session_hash: 0,
            head_hash: 0,
            decision_number: 0,
            slo_ttft_ms: None,
        };
        NetworkTerm.signal(&request, &candidates, &mut out);
        assert_eq!(out, [Some(37.0), Some(1_116.0), None, Some(456.0)]);
    }
}
