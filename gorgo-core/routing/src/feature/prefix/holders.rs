//! Which replicas hold a block, and when each used it last: 24 bytes of its own for up to three replicas, a bitmap and
//! 8 bytes per replica beyond.

/// Replicas that a block holds without a heap allocation.
const FEW: usize = 3;
/// Bits of a time stamp in a packed entry; the replica has the 16 above.
const STAMP_BITS: u32 = 48;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// The replicas of one block.
#[derive(Debug)]
pub(super) enum Holders {
    /// Packed (replica, stamp), in no order.
    Few { len: u8, packed: [u64; FEW] },
    /// First a bitmap of `words` words, then one stamp per set bit, in order of replicas.
    Many(Vec<u64>),
}

const fn pack(replica: u16, stamp: u64) -> u64 {
    ((replica as u64) << STAMP_BITS) | (stamp & STAMP_MASK)
}

const fn holder(packed: u64) -> usize {
    (packed >> STAMP_BITS) as usize // 16 bits
}

impl Holders {
    pub(super) const NOBODY: Self = Self::Few { len: 0, packed: [0; FEW] };

    pub(super) fn is_empty(&self, words: usize) -> bool {
        match self {
            Self::Few { len, .. } => *len == 0,
            Self::Many(list) => list.len() == words,
        }
    }

    /// Heap bytes beyond the value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(list) => list.capacity() * size_of::<u64>(),
        }
    }

    /// When `replica` used the block last; `None` where it does not hold it.
    pub(super) fn stamp(&self, replica: u16, words: usize) -> Option<u64> {
        match self {
            Self::Few { len, packed } => packed[..usize::from(*len)]
                .iter()
                .find(|entry| holder(**entry) == usize::from(replica))
                .map(|entry| entry & STAMP_MASK),
            Self::Many(list) => match find(list, replica, words) {
                Ok(at) => Some(list[at]),
                Err(_) => None,
            },
        }
    }

    /// Notes a use. The stamp of the one before; `None` where the replica did not hold the block.
    pub(super) fn touch(&mut self, replica: u16, stamp: u64, words: usize) -> Option<u64> {
        match self {
            Self::Few { len, packed } => {
                let used = usize::from(*len);
                if let Some(entry) = packed[..used].iter_mut().find(|entry| holder(**entry) == usize::from(replica)) {
                    return Some(std::mem::replace(entry, pack(replica, stamp)) & STAMP_MASK);
                }
                if used < FEW {
                    packed[used] = pack(replica, stamp);
                    *len += 1;
                    return None;
                }
                let mut entries = *packed;
                entries.sort_unstable();
                let mut list = Vec::with_capacity(words + 2 * FEW);
                list.resize(words, 0);
                for entry in entries {
                    list[holder(entry) / 64] |= 1 << (holder(entry) % 64);
                    list.push(entry & STAMP_MASK);
                }
                *self = Self::Many(list);
                self.touch(replica, stamp, words)
            }
            Self::Many(list) => match find(list, replica, words) {
                Ok(at) => Some(std::mem::replace(&mut list[at], stamp & STAMP_MASK)),
                Err(at) => {
                    list.insert(at, stamp & STAMP_MASK);
                    list[usize::from(replica) / 64] |= 1 << (replica % 64);
                    None
                }
            },
        }
    }

    /// Takes a replica out. False where it was not in.
    pub(super) fn remove(&mut self, replica: u16, words: usize) -> bool {
        match self {
            Self::Few { len, packed } => {
                let used = usize::from(*len);
                let Some(at) = packed[..used].iter().position(|entry| holder(*entry) == usize::from(replica)) else {
                    return false;
                };
                packed.swap(at, used - 1);
                *len -= 1;
                true
            }
            Self::Many(list) => {
                let Ok(at) = find(list, replica, words) else { return false };
                list.remove(at);
                list[usize::from(replica) / 64] &= !(1 << (replica % 64));
                // Two and not three, so that one replica that comes and goes does not turn it around each time.
                if list.len() - words < FEW {
                    *self = self.few(words);
                }
                true
            }
        }
    }

    /// The short form of a list that has become short.
    fn few(&self, words: usize) -> Self {
        let mut short = Self::NOBODY;
        if let Self::Many(list) = self {
            let stamps = &list[words..];
            for (replica, stamp) in bits(&list[..words]).zip(stamps) {
                short.touch(replica, *stamp, words);
            }
        }
        short
    }

    /// Keeps in `active` only who holds the block too; who leaves gets `depth` as its match in `out`.
    pub(super) fn narrow(&self, active: &mut [u64], depth: u32, out: &mut [u32]) {
        match self {
            Self::Many(list) => {
                for (word, (live, held)) in active.iter_mut().zip(list).enumerate() {
                    leave(word, *live & !held, depth, out);
                    *live &= held;
                }
            }
            Self::Few { len, packed } => {
                let entries = &packed[..usize::from(*len)];
                for (word, live) in active.iter_mut().enumerate() {
                    if *live == 0 {
                        continue;
                    }
                    let here = entries.iter().filter(|entry| holder(**entry) / 64 == word);
                    let held = here.fold(0, |held, entry| held | 1 << (holder(*entry) % 64));
                    leave(word, *live & !held, depth, out);
                    *live &= held;
                }
            }
        }
    }
}

fn leave(word: usize, mut leaving: u64, depth: u32, out: &mut [u32]) {
    if depth == 0 {
        return; // `out` is zero already
    }
    while leaving != 0 {
        if let Some(blocks) = out.get_mut(word * 64 + leaving.trailing_zeros() as usize) {
            *blocks = depth;
        }
        leaving &= leaving - 1;
    }
}

/// Where the stamp of `replica` stands, or would.
fn find(list: &[u64], replica: u16, words: usize) -> Result<usize, usize> {
    let word = usize::from(replica) / 64;
    let bit = 1_u64 << (replica % 64);
    let before: u32 = list[..word].iter().map(|bits| bits.count_ones()).sum();
    let at = words + (before + (list[word] & (bit - 1)).count_ones()) as usize;
    if list[word] & bit == 0 { Err(at) } else { Ok(at) }
}

/// The set bits, as replicas.
fn bits(bitmap: &[u64]) -> impl Iterator<Item = u16> + '_ {
    (0_u16..)
        .zip(bitmap)
        .flat_map(|(word, bits)| (0_u16..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit))
}
