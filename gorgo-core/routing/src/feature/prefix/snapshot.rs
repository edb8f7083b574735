//! What a replica's part of the index held, as bytes for the history database.
//!
//! Block hashes are keyed with the database's secret (see `chain`), so they mean something only in the database they
//! were made with, and tell nothing of any prompt. The head of the bytes says what they fit: secret, block size, engine
//! and address of the replica. A snapshot that does not fit is refused, and so is one that is too old, comes from the
//! future or is damaged; bytes from anywhere never do more than that.
//!
//! ```text
//! "gorgoidx" | version u32 | fits u64 | checksum u64 of the rest | taken at, µs u64 | uses u32 |
//!     per use, newest first: age at that time, µs u64 | decision i64 | 1 and the parent u64, or 0 | blocks u32, u64 each
//! ```

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::export::Remembered;
use crate::model::{At, DecisionId};

/// Most blocks of one replica that are kept, newest first: 2 MiB, 16 million tokens at 64 to a block.
pub const MAX_BLOCKS: usize = 262_144;

const MAGIC: &[u8; 8] = b"gorgoidx";
const VERSION: u32 = 1;
/// Bytes before what the checksum is of.
const HEAD: usize = 28;
/// No engine keeps a cache longer, µs: a year. Stamps of the index have room for nine.
const MOST_AGE_US: u64 = 365 * 86_400 * 1_000_000;

/// What a snapshot must fit.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotKey<'a> {
    /// Secret of the database, which the hashes are keyed with.
    pub secret: u64,
    /// Prompt bytes per block.
    pub block_bytes: u64,
    /// Kind of the replica's engine.
    pub engine: &'a str,
    /// Its address.
    pub url: &'a str,
}

impl SnapshotKey<'_> {
    /// All of it as one number.
    #[must_use]
    pub fn fits(&self) -> u64 {
        let seed = xxh3_64_with_seed(self.engine.as_bytes(), self.secret ^ self.block_bytes.rotate_left(32));
        xxh3_64_with_seed(self.url.as_bytes(), seed)
    }
}

/// Why a snapshot is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Another program's, or not whole.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Of a gorgo that writes them otherwise.
    #[error("it is of version {0}, known is {VERSION}")]
    Version(u32),
    /// Of another secret, block size, engine or address.
    #[error("it is of another database, block size, engine or address")]
    Foreign,
    /// Older than the caller wants.
    #[error("it is {0} s old")]
    TooOld(u64),
    /// Taken later than now.
    #[error("it is from the future: a clock was set back")]
    Future,
}

/// Uses, newest first, as bytes.
#[must_use]
pub fn encode(fits: u64, taken: At, uses: &[Remembered]) -> Vec<u8> {
    let blocks: usize = uses.iter().map(|used| used.blocks.len()).sum();
    let mut bytes = Vec::with_capacity(HEAD + 12 + uses.len() * 29 + blocks * 8);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&fits.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&taken.0.to_le_bytes());
    bytes.extend_from_slice(&count(uses.len()));
    for used in uses {
        bytes.extend_from_slice(&taken.0.saturating_sub(used.at.0).to_le_bytes());
        bytes.extend_from_slice(&used.decision.0.to_le_bytes());
        bytes.push(u8::from(used.parent.is_some()));
        if let Some(parent) = used.parent {
            bytes.extend_from_slice(&parent.to_le_bytes());
        }
        bytes.extend_from_slice(&count(used.blocks.len()));
        used.blocks.iter().for_each(|block| bytes.extend_from_slice(&block.to_le_bytes()));
    }
    let checksum = xxh3_64(&bytes[HEAD..]);
    bytes[HEAD - 8..HEAD].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Bytes → uses, newest first, where they fit, and are at most `most_age_secs` old at `now`.
///
/// # Errors
/// Why they are refused.
pub fn decode(bytes: &[u8], fits: u64, now: At, most_age_secs: u64) -> Result<Vec<Remembered>, SnapshotError> {
    let mut rest = Rest(bytes);
    if rest.take::<8>()? != *MAGIC {
        return Err(SnapshotError::Damaged("it does not begin as one"));
    }
    let version = u32::from_le_bytes(rest.take()?);
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let (found, checksum) = (rest.number()?, rest.number()?);
    if xxh3_64(rest.0) != checksum {
        return Err(SnapshotError::Damaged("its checksum is wrong"));
    }
    if found != fits {
        return Err(SnapshotError::Foreign);
    }
    let taken = At(rest.number()?);
    if taken > now {
        return Err(SnapshotError::Future);
    }
    let age_secs = now.since(taken).as_secs();
    if age_secs > most_age_secs {
        return Err(SnapshotError::TooOld(age_secs));
    }
    rest.uses(taken)
}

fn count(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

/// What was not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Damaged("it is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn uses(&mut self, taken: At) -> Result<Vec<Remembered>, SnapshotError> {
        let uses = u32::from_le_bytes(self.take()?);
        let (mut all, mut left, mut last_age) = (Vec::new(), MAX_BLOCKS, 0);
        for _ in 0..uses {
            let age = self.number()?;
            if age < last_age || age > MOST_AGE_US {
                return Err(SnapshotError::Damaged("its uses are out of order"));
            }
            last_age = age;
            let decision = DecisionId(i64::from_le_bytes(self.take()?));
            if decision.0 < 0 {
                return Err(SnapshotError::Damaged("a decision has no number"));
            }
            let parent = match self.take()? {
                [0] => None,
                [1] => Some(self.number()?),
                _ => return Err(SnapshotError::Damaged("a parent is neither there nor absent")),
            };
            let blocks = usize::try_from(u32::from_le_bytes(self.take()?)).unwrap_or(usize::MAX);
            // Before anything is reserved: a count says nothing until the bytes are there.
            if blocks == 0 || blocks > left || blocks > self.0.len() / 8 {
                return Err(SnapshotError::Damaged("it has other blocks than it says"));
            }
            left -= blocks;
            let blocks = (0..blocks).map(|_| self.number()).collect::<Result<_, _>>()?;
            all.push(Remembered { at: At(taken.0.saturating_sub(age)), decision, parent, blocks });
        }
        if self.0.is_empty() { Ok(all) } else { Err(SnapshotError::Damaged("something follows its end")) }
    }
}
