//! Round trips that a request's bytes take on a TCP connection, from its congestion window.
//!
//! A sender may have one window of bytes unacknowledged, and the window doubles with each round trip until the path or
//! a loss limits it (slow start, RFC 5681 section 3.1). Linux halves the window of an idle connection for each
//! retransmission time-out that it was idle, down to the initial window of a new one, unless
//! `net.ipv4.tcp_slow_start_after_idle` is 0 (section 4.1). Beyond the point where the kernel leaves slow start, growth
//! is linear but treated as doubling here: prompts rarely need more than that.

use std::fs;
use std::time::Duration;

use crate::edge::upstream::tcp_info::TcpState;

/// Initial window of a new connection: ten segments of an Ethernet path (RFC 6928).
pub(in crate::edge) const FIRST_WINDOW: u64 = 10 * 1_448;

/// Round trips from the first byte of a request of `bytes` to the first byte that can come back, with an initial window
/// of `window` bytes; at least 1.
pub(in crate::edge) fn round_trips(bytes: u64, window: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "prompts and windows stay far below 2^53 bytes")]
    let windows = bytes as f64 / window.max(1) as f64;
    // After n round trips 2^n − 1 windows were sent, so bytes ÷ window = 2^n − 1 is solved for n.
    (windows + 1.0).log2().ceil().max(1.0)
}

/// Window of a connection after `idle`. `restarts`: the kernel shrinks the window of idle connections.
pub(in crate::edge) fn window_after(state: &TcpState, idle: Duration, restarts: bool) -> u64 {
    if !restarts {
        return state.window_bytes;
    }
    let timeouts = idle.as_secs_f64() * 1e3 / state.timeout_ms.max(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; never negative")]
    let halvings = timeouts as u32;
    // A connection whose window is already below the initial one is not enlarged by being idle.
    let floor = FIRST_WINDOW.min(state.window_bytes);
    state.window_bytes.checked_shr(halvings).unwrap_or(0).max(floor)
}

/// Returns `true` if this machine's kernel shrinks the window of idle connections. If unreadable: true, its default.
pub(in crate::edge) fn kernel_restarts() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_slow_start_after_idle").map_or(true, |text| text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: u64 = 70_000;

    fn warm(window_bytes: u64) -> TcpState {
        TcpState { smoothed_ms: 279.0, min_ms: 279.0, window_bytes, timeout_ms: 520.0 }
    }

    /// Measured over a link of 279 ms with a prompt of 70 KB: 280 ms warm, 839 on a connection that was opened but
    /// unused; 561 after 1 s without a request, 840 after 10 s.
    #[test]
    fn the_measured_round_trips_come_out() {
        assert!((round_trips(PROMPT, 80_000) - 1.0).abs() < 1e-9);
        assert!((round_trips(PROMPT, FIRST_WINDOW) - 3.0).abs() < 1e-9);
        let after = |idle| round_trips(PROMPT, window_after(&warm(80_000), Duration::from_secs(idle), true));
        assert!((after(1) - 2.0).abs() < 1e-9);
        assert!((after(10) - 3.0).abs() < 1e-9);
        assert_eq!(window_after(&warm(80_000), Duration::from_secs(10), false), 80_000);
    }

    #[test]
    fn more_bytes_never_take_fewer_round_trips_nor_larger_windows_more() {
        for window in [1, 1_448, FIRST_WINDOW, 1 << 20] {
            for bytes in (0..2_000_000).step_by(9_973) {
                let trips = round_trips(bytes, window);
                assert!(trips >= 1.0 && trips <= round_trips(bytes + 9_973, window), "{bytes} {window}");
                assert!(round_trips(bytes, window + 1_448) <= trips, "{bytes} {window}");
            }
        }
        assert_eq!(window_after(&warm(4_000), Duration::from_secs(3_600), true), 4_000, "never below its own");
    }
}
