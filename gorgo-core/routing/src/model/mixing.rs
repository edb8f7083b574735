//! Spreading the bits of a number.

/// Spreads the bits of a number one to one (the finaliser of splitmix64): different in, different out.
#[must_use]
pub const fn mix_bits(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
