//! Affinity: a replica's position in the rendezvous order of a key. 0 is the key's home, 1 the replica that takes over
//! when the home is gone, and so on.
//!
//! Reads `name_hash` and the request's `session_hash` or `head_hash`. Highest-random-weight hashing (Thaler and
//! Ravishankar, 1998): when a replica leaves, only its own keys move; when one joins, it takes its fair part of each
//! other's. The place, not the hash itself, is the signal, since signals are rounded to thousandths and hashes that
//! other. The position, not the hash itself, is the signal, since signals are rounded to thousandths and hashes that

use std::cmp::Reverse;

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit, mix_bits};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "hash",
    unit: Some(Unit::One),
    summary: "position of the replica in the key's rendezvous order, 0 for its home",
    spreads: true,
    params: &[
        ParamSpec {
            name: "key",
            ty: ParamType::Text { default: Some("session"), choices: &["session", "head"] },
            unit: "",
            help: "the session, or the first 256 tokens of the prompt",
        },
        ParamSpec {
            name: "choices",
            ty: ParamType::Integer { default: Some(1), min: 1, max: 65_536 },
            unit: "replicas",
            help: "number of homes of a key; all of them have position 0",
        },
    ],
    build: |params, _| {
        let choices = params.integer("choices").and_then(|choices| usize::try_from(choices).ok()).unwrap_or(1);
        Ok(Box::new(HashTerm { head: params.text("key") == Some("head"), choices }))
    },
};

#[derive(Debug)]
struct HashTerm {
    head: bool,
    choices: usize,
}

impl CostTerm for HashTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    #[expect(clippy::cast_precision_loss, reason = "a place in a fleet of at most 65,536")]
    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let key = if self.head { request.head_hash } else { request.session_hash };
        // Two replicas of equal hash (practically none) are ordered by id, so that the order of rows does not matter.
        // Every replica is hashed with the key by itself, so one that joins or leaves moves no key between the
        // others.
        let mut order: Vec<_> = (0..candidates.len())
            .map(|row| (Reverse(mix(key, candidates.name_hash[row])), candidates.replica[row], row))
            .collect();
        order.sort_unstable();
        for (place, (_, _, row)) in order.into_iter().enumerate() {
            out[row] = Some((place + 1).saturating_sub(self.choices) as f64);
        }
    }
}

/// Mixes both numbers, so that every input bit spreads over the result.
const fn mix(key: u64, replica: u64) -> u64 {
    mix_bits(key ^ replica.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_is_home_to_its_part_of_the_keys() {
        let names = [11_u64, 12, 13, 14];
        let mut homes = [0_u32; 4];
        for key in 0..4_000_u64 {
            let home = (0..4).max_by_key(|row| mix(key, names[*row])).unwrap();
            homes[home] += 1;
        }
        assert!(homes.iter().all(|keys| (900..1_100).contains(keys)), "{homes:?}");
    }
}
