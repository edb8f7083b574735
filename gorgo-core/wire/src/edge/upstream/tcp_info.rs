//! TCP statistics of a connection from the kernel, above all its round trip: one `getsockopt(TCP_INFO)` on Linux,
//! unknown elsewhere.
//!
//! Costs a system call and no packet. The round trip is that to the next TCP end point, which need not be the engine;
//! `feature::rtt` compares it with the probe before it is used. Apart from the plugin files this is the only `unsafe`:
//! no safe wrapper exists in the crates used here.

/// TCP statistics of one connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TcpState {
    /// Smoothed round trip, ms.
    pub smoothed_ms: f64,
    /// Smallest round trip of the last minutes, ms.
    pub min_ms: f64,
    /// Bytes that may be in flight unacknowledged: congestion window × segment size.
    pub window_bytes: u64,
    /// Time without an acknowledgement after which the kernel retransmits, ms.
    pub timeout_ms: f64,
}

/// Statistics of a connected TCP socket. `None` if the kernel has no round trip yet, is too old to report one, or the
/// socket is no TCP socket.
#[cfg(target_os = "linux")]
#[must_use]
pub fn state(socket: std::os::fd::BorrowedFd<'_>) -> Option<TcpState> {
    use std::mem::{MaybeUninit, offset_of, size_of};
    use std::os::fd::AsRawFd;

    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    #[expect(unsafe_code, reason = "no safe wrapper of TCP_INFO exists in the crates used here")]
    // SAFETY: the descriptor is borrowed, so open for the whole call; `info` and `length` are ours, and the kernel
    // writes at most `length` bytes, the size of `info`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let written = usize::try_from(length).ok()?;
    // An older kernel fills only a shorter structure; without the minimum there is nothing to compare with the probe.
    if status != 0 || written < offset_of!(libc::tcp_info, tcpi_min_rtt) + size_of::<u32>() {
        return None;
    }
    #[expect(unsafe_code, reason = "the kernel filled it through a pointer")]
    // SAFETY: zeroed before the call, and all fields are integers, for which any bytes are a value.
    let info = unsafe { info.assume_init() };
    // The kernel's initial values before it has measured anything.
    let known = info.tcpi_rtt > 0 && info.tcpi_min_rtt < u32::MAX;
    let ms = |micros: u32| f64::from(micros) / 1e3;
    known.then(|| TcpState {
        smoothed_ms: ms(info.tcpi_rtt),
        min_ms: ms(info.tcpi_min_rtt),
        window_bytes: u64::from(info.tcpi_snd_cwnd) * u64::from(info.tcpi_snd_mss),
        timeout_ms: ms(info.tcpi_rto),
    })
}

/// Unknown on this system.
#[cfg(all(unix, not(target_os = "linux")))]
#[must_use]
pub const fn state(_socket: std::os::fd::BorrowedFd<'_>) -> Option<TcpState> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_loopback_connection_has_a_short_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for _ in 0..8 {
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(b"y").unwrap();
            near.read_exact(&mut [0]).unwrap();
        }
        let found = state(near.as_fd()).expect("the kernel has an estimate after eight round trips");
        assert!(found.smoothed_ms > 0.0 && found.smoothed_ms < 1_000.0, "{found:?}");
        assert!(found.min_ms >= 0.0 && found.min_ms <= found.smoothed_ms, "{found:?}");
        assert!(found.window_bytes > 1_000 && found.timeout_ms > found.smoothed_ms, "{found:?}");
    }

    #[test]
    fn what_is_no_tcp_connection_has_none() {
        assert_eq!(state(UdpSocket::bind("127.0.0.1:0").unwrap().as_fd()), None);
        assert_eq!(state(TcpListener::bind("127.0.0.1:0").unwrap().as_fd()), None);
    }
}
