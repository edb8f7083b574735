//! Time spent in a call: elapsed time, and computing time of this thread alone.
#![expect(unsafe_code, reason = "the system's clocks")]

use std::mem::MaybeUninit;

/// Nanoseconds of a clock that never runs backwards. Reading it takes some 20 ns.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds that this thread spent computing: time taken by other threads does not count. Reading it is a system
/// call, ten times as expensive as [`monotonic_ns`].
pub(crate) fn thread_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is writable and of the type that the call fills in.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        // Neither clock is ever missing on the systems that gorgo runs on; if one were, no call would exceed its budget.
        return 0;
    }
    // SAFETY: the call succeeded, so `time` was filled in.
    let time = unsafe { time.assume_init() };
    let (secs, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    secs * 1_000_000_000 + nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_run_and_only_one_counts_sleep() {
        let (wall, thread) = (monotonic_ns(), thread_ns());
        let mut sum = 0_u64;
        while thread_ns() == thread {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(monotonic_ns() > wall, "{sum}");
    }
}
