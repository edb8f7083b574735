//! Each replica's share of the fleet's KV capacity.

/// Shares of `capacities` (tokens, 0 where unknown), which sum to 1. While any is unknown all count alike: a known
/// capacity beside an unknown one says nothing about their ratio.
pub(super) fn capacity_shares(capacities: &[u64]) -> impl Fn(usize) -> f64 {
    let total: u64 = capacities.iter().sum();
    let equal = capacities.contains(&0);
    let count = capacities.len().max(1);
    #[expect(clippy::cast_precision_loss, reason = "tokens and replicas stay far below 2^53")]
    move |row| if equal { 1.0 / count as f64 } else { capacities[row] as f64 / total as f64 }
}
