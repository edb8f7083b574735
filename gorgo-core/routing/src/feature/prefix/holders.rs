//! Replicas that hold a block, with the stamp of each one's last use: 24 bytes inline for up to three replicas, a
//! bitmap and 8 bytes per replica beyond.

/// Number of replicas that a block stores without a heap allocation.
const FEW: usize = 3;
/// Bits of a stamp in a packed entry; the 16 bits above are the replica.
const STAMP_BITS: u32 = 48;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// Replicas of one block.
#[derive(Debug)]
pub(super) enum BlockHolders {
    /// Packed (replica, stamp) pairs, unordered.
    Few { len: u8, packed: [u64; FEW] },
    /// Bitmap of `words` words, followed by one stamp per set bit, in order of replicas.
    Many(Vec<u64>),
}

const fn pack(replica: u16, stamp: u64) -> u64 {
    ((replica as u64) << STAMP_BITS) | (stamp & STAMP_MASK)
}

const fn holder(packed: u64) -> usize {
    (packed >> STAMP_BITS) as usize // 16 bits
}

impl BlockHolders {
    pub(super) const NOBODY: Self = Self::Few { len: 0, packed: [0; FEW] };

    pub(super) fn is_empty(&self, words: usize) -> bool {
        match self {
            Self::Few { len, .. } => *len == 0,
            Self::Many(list) => list.len() == words,
        }
    }

    /// Heap bytes in addition to the value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(list) => list.capacity() * size_of::<u64>(),
        }
    }

    /// Stamp of the last use by `replica`; `None` if it does not hold the block.
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

    /// Records a use. Returns the stamp of the previous one; `None` if the replica did not hold the block.
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
                // The inline array is full: convert to the bitmap form. Stamps must follow in order of replicas, hence
                // the sort.
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

    /// Removes a replica. Returns false if it did not hold the block.
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
                // Below three, not at three, so that one replica that comes and goes does not convert the form back and
                // forth.
                if list.len() - words < FEW {
                    *self = self.few(words);
                }
                true
            }
        }
    }

    /// Inline form of a list that has become short.
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

    /// Keeps in `active` only replicas that hold the block too; those that drop out get `depth` as their match in
    /// `out`.
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
                // Words without active replicas need no scan of the entries.
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
        // Clears the lowest set bit.
        leaving &= leaving - 1;
    }
}

/// Position of the stamp of `replica`, or the position at which it would be inserted.
fn find(list: &[u64], replica: u16, words: usize) -> Result<usize, usize> {
    let word = usize::from(replica) / 64;
    let bit = 1_u64 << (replica % 64);
    // The rank of the bit among the set ones is the position of its stamp.
    let before: u32 = list[..word].iter().map(|bits| bits.count_ones()).sum();
    let at = words + (before + (list[word] & (bit - 1)).count_ones()) as usize;
    if list[word] & bit == 0 { Err(at) } else { Ok(at) }
}

/// Replicas of the set bits.
fn bits(bitmap: &[u64]) -> impl Iterator<Item = u16> + '_ {
    (0_u16..)
        .zip(bitmap)
        .flat_map(|(word, bits)| (0_u16..64).filter(move |bit| bits & (1 << bit) != 0).map(move |bit| word * 64 + bit))
}
