//! Contents of a replica's part of the index as bytes, for the history database.
//!
//! Block hashes are keyed with the database's secret (see `chain`), so they mean something only in the database in
//! which they were made, and reveal nothing about any prompt. The head of the bytes identifies what they fit: secret,
//! block size, engine and address of the replica. A snapshot that does not fit is refused, and so is one that is too
//! old, comes from the future or is damaged; bad bytes have no other effect.
//!
//! ```text
//! "gorgoidx" | version u32 | fits u64 | checksum u64 of the rest | taken at, µs u64 | uses u32 |
//!     per use, newest first: age at that time, µs u64 | decision i64 | 1 and the parent u64, or 0 | blocks u32, u64 each
//! ```

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::export::SnapshotPath;
use crate::model::{DecisionId, UnixMicros};

/// Most blocks of one replica that are kept, newest first: 2 MiB, 16 million tokens at 64 to a block.
pub const MAX_BLOCKS: usize = 262_144;

const MAGIC: &[u8; 8] = b"gorgoidx";
const VERSION: u32 = 1;
/// Number of bytes before the part that the checksum covers.
const HEAD: usize = 28;
/// Longest plausible age of a use, µs: a year. Stamps of the index have room for nine.
const MOST_AGE_US: u64 = 365 * 86_400 * 1_000_000;

/// Identity that a snapshot must match.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotKey<'a> {
    /// Secret of the database, with which the hashes are keyed.
    pub secret: u64,
    /// Prompt bytes per block.
    pub block_bytes: u64,
    /// Kind of the replica's engine.
    pub engine: &'a str,
    /// Address of the engine.
    pub url: &'a str,
}

impl SnapshotKey<'_> {
    /// Hash of the whole identity.
    #[must_use]
    pub fn fits(&self) -> u64 {
        let seed = xxh3_64_with_seed(self.engine.as_bytes(), self.secret ^ self.block_bytes.rotate_left(32));
        xxh3_64_with_seed(self.url.as_bytes(), seed)
    }
}

/// Reason for refusing a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Written by another program, or incomplete.
    #[error("snapshot is damaged: {0}")]
    Damaged(&'static str),
    /// Written in another version of the format.
    #[error("snapshot has format version {0}; this gorgo reads version {VERSION}")]
    Version(u32),
    /// Made for another secret, block size, engine or address.
    #[error("snapshot belongs to another database, block size, engine or address")]
    Foreign,
    /// Older than the caller accepts.
    #[error("snapshot is too old: {0} s")]
    TooOld(u64),
    /// Taken later than now.
    #[error("snapshot is from the future: the clock was set back")]
    Future,
}

/// Encodes uses, newest first.
#[must_use]
pub fn encode(fits: u64, taken: UnixMicros, uses: &[SnapshotPath]) -> Vec<u8> {
    let blocks: usize = uses.iter().map(|used| used.blocks.len()).sum();
    let mut bytes = Vec::with_capacity(HEAD + 12 + uses.len() * 29 + blocks * 8);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&fits.to_le_bytes());
    // Room for the checksum, which can only be computed over the finished bytes.
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

/// Decodes uses, newest first, if they fit and are at most `most_age_secs` old at `now`.
///
/// # Errors
/// The reason for refusing them.
pub fn decode(
    bytes: &[u8],
    fits: u64,
    now: UnixMicros,
    most_age_secs: u64,
) -> Result<Vec<SnapshotPath>, SnapshotError> {
    let mut rest = SnapshotReader(bytes);
    if rest.take::<8>()? != *MAGIC {
        return Err(SnapshotError::Damaged("wrong magic bytes"));
    }
    let version = u32::from_le_bytes(rest.take()?);
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let (found, checksum) = (rest.number()?, rest.number()?);
    // Checked before anything that it covers is read.
    if xxh3_64(rest.0) != checksum {
        return Err(SnapshotError::Damaged("wrong checksum"));
    }
    if found != fits {
        return Err(SnapshotError::Foreign);
    }
    let taken = UnixMicros(rest.number()?);
    if taken > now {
        return Err(SnapshotError::Future);
    }
    let age_secs = now.elapsed_since(taken).as_secs();
    if age_secs > most_age_secs {
        return Err(SnapshotError::TooOld(age_secs));
    }
    rest.uses(taken)
}

fn count(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

/// Bytes that are not read yet.
struct SnapshotReader<'a>(&'a [u8]);

impl SnapshotReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Damaged("unexpected end"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn uses(&mut self, taken: UnixMicros) -> Result<Vec<SnapshotPath>, SnapshotError> {
        let uses = u32::from_le_bytes(self.take()?);
        let (mut all, mut left, mut last_age) = (Vec::new(), MAX_BLOCKS, 0);
        for _ in 0..uses {
            let age = self.number()?;
            // Newest first: ages never fall. `restore` depends on that order.
            if age < last_age || age > MOST_AGE_US {
                return Err(SnapshotError::Damaged("uses are out of order"));
            }
            last_age = age;
            let decision = DecisionId(i64::from_le_bytes(self.take()?));
            if decision.0 < 0 {
                return Err(SnapshotError::Damaged("negative decision number"));
            }
            let parent = match self.take()? {
                [0] => None,
                [1] => Some(self.number()?),
                _ => return Err(SnapshotError::Damaged("invalid parent marker")),
            };
            let blocks = usize::try_from(u32::from_le_bytes(self.take()?)).unwrap_or(usize::MAX);
            // Before anything is allocated: a count proves nothing until that many bytes are there.
            if blocks == 0 || blocks > left || blocks > self.0.len() / 8 {
                return Err(SnapshotError::Damaged("wrong number of blocks"));
            }
            // One limit for the whole snapshot, not one per use.
            left -= blocks;
            let blocks = (0..blocks).map(|_| self.number()).collect::<Result<_, _>>()?;
            all.push(SnapshotPath { at: UnixMicros(taken.0.saturating_sub(age)), decision, parent, blocks });
        }
        if self.0.is_empty() { Ok(all) } else { Err(SnapshotError::Damaged("trailing bytes")) }
    }
}
