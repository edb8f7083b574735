//! Decodes frames of an engine's publisher into changes of its cache.
//!
//! A batch is msgpack: `[ts, [event…], rank]`, where an event is a map with `type`, or, from older engines, an array
//! that begins with it. Names of blocks are integers of either sign, or byte strings, of which the last eight bytes
//! count (as vLLM truncates its own). Decoded straight from the bytes: skipped values are never built, and nothing is
//! allocated before its bytes are there, so a frame costs at most some four times its length. Sources: vLLM's
//! `distributed/kv_events.py` 0.32, SGLang's `disaggregation/kv_events.py`.

use rmp::Marker;
use rmp::decode::read_marker;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use gorgo_routing::model::{KvChange, StoredBlocks};

/// Longest batch that is read, bytes: 200,000 tokens are less than one.
pub const MOST_BYTES: usize = 16 << 20;
/// Deepest nesting of values that are skipped; no engine nests deeper.
const MOST_DEPTH: usize = 32;

/// Batch of events.
#[derive(Debug, Clone, PartialEq)]
pub struct KvEventBatch {
    /// Time at which the engine made it, by its clock, seconds.
    pub created_secs: f64,
    /// Changes of the cache.
    pub changes: Vec<KvChange>,
    /// Events of an unknown kind.
    pub unknown: u64,
}

/// Reasons why a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not the three frames of a batch.
    #[error("it has {0} frames instead of three (topic, number, batch)")]
    Frames(usize),
    /// The number is not eight bytes long.
    #[error("its number has {0} bytes instead of 8")]
    Number(usize),
    /// Longer than any batch.
    #[error("it is too long ({0} bytes)")]
    TooLong(usize),
    /// The frame ends before its content does.
    #[error("it is truncated")]
    Truncated,
    /// Another value than expected.
    #[error("it lacks {0} in the expected place")]
    Unexpected(&'static str),
    /// Nested too deeply.
    #[error("it is nested too deeply")]
    TooDeep,
}

/// Number of a batch; `-1` ends a replay.
///
/// # Errors
/// The frame is no number.
pub fn batch_number(frame: &[u8]) -> Result<i64, FrameError> {
    frame.try_into().map(i64::from_be_bytes).map_err(|_| FrameError::Number(frame.len()))
}

/// Decodes a batch.
///
/// # Errors
/// The frame is no batch.
pub fn decode_batch(frame: &[u8]) -> Result<KvEventBatch, FrameError> {
    if frame.len() > MOST_BYTES {
        return Err(FrameError::TooLong(frame.len()));
    }
    let mut rest = MsgpackCursor(frame);
    let members = rest.array("a batch")?;
    if members < 2 {
        return Err(FrameError::Unexpected("time and events"));
    }
    let made = rest.time()?;
    let mut batch = KvEventBatch { created_secs: made, changes: Vec::new(), unknown: 0 };
    for _ in 0..rest.array("a list of events")? {
        match rest.event()? {
            Some(change) => batch.changes.push(change),
            None => batch.unknown += 1,
        }
    }
    // The data-parallel rank, and members that later engines may add.
    rest.skip(members - 2)?;
    Ok(batch)
}

/// Fields of an event of any kind.
#[derive(Debug, Default)]
struct EventFields {
    kind: Vec<u8>,
    blocks: Option<Vec<u64>>,
    parent: Option<u64>,
    tokens: Option<Vec<u32>>,
    block_tokens: u32,
    adapter: u64,
    extra_keys: Vec<u64>,
    /// The block belongs to a further pool of a hybrid model.
    other_pool: bool,
}

/// Field that a name, or a position in an array, means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventField {
    Kind,
    Blocks,
    Parent,
    Tokens,
    BlockTokens,
    Adapter,
    ExtraKeys,
    Pool,
    Other,
}

/// Fields of a stored event's array, from its kind on; of other kinds only the first two positions are fields.
const ARRAY_FIELDS: [EventField; 10] = [
    EventField::Kind,
    EventField::Blocks,
    EventField::Parent,
    EventField::Tokens,
    EventField::BlockTokens,
    EventField::Adapter,
    EventField::Other, // medium
    EventField::Adapter,
    EventField::ExtraKeys,
    EventField::Pool,
];

impl EventField {
    fn named(name: &[u8]) -> Self {
        match name {
            b"type" => Self::Kind,
            b"block_hashes" => Self::Blocks,
            b"parent_block_hash" => Self::Parent,
            b"token_ids" => Self::Tokens,
            b"block_size" => Self::BlockTokens,
            b"lora_id" | b"lora_name" => Self::Adapter,
            b"extra_keys" => Self::ExtraKeys,
            b"group_idx" => Self::Pool,
            _ => Self::Other,
        }
    }
}

impl EventFields {
    /// Builds the change; `None` if its kind is unknown.
    fn change(mut self) -> Result<Option<KvChange>, FrameError> {
        Ok(Some(match &*self.kind {
            b"BlockStored" => {
                let blocks = self.blocks.take().ok_or(FrameError::Unexpected("names of stored blocks"))?;
                let tokens = self.tokens.take().ok_or(FrameError::Unexpected("tokens of stored blocks"))?;
                // Blocks of a hybrid model's other pools are not tracked. An empty change, since `None` would count the
                // event as unknown.
                if self.other_pool {
                    return Ok(Some(KvChange::Removed(Vec::new())));
                }
                // The same tokens under another adapter are other blocks, so the adapter is mixed into their extra
                // keys.
                if self.adapter != 0 {
                    self.extra_keys.resize(blocks.len(), 0);
                    self.extra_keys.iter_mut().for_each(|apart| *apart ^= self.adapter);
                }
                let Self { parent, block_tokens, extra_keys: apart, .. } = self;
                KvChange::Stored(StoredBlocks { blocks, parent, tokens, block_tokens, extra_key_digests: apart })
            }
            b"BlockRemoved" => {
                let blocks = self.blocks.take().ok_or(FrameError::Unexpected("names of removed blocks"))?;
                KvChange::Removed(if self.other_pool { Vec::new() } else { blocks })
            }
            b"AllBlocksCleared" => KvChange::Cleared,
            _ => return Ok(None),
        }))
    }
}

/// Unread rest of a frame.
struct MsgpackCursor<'a>(&'a [u8]);

impl<'a> MsgpackCursor<'a> {
    fn marker(&mut self) -> Result<Marker, FrameError> {
        read_marker(&mut self.0).map_err(|_| FrameError::Truncated)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], FrameError> {
        let (head, rest) = self.0.split_at_checked(bytes).ok_or(FrameError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    /// Big-endian number of `bytes` bytes.
    fn whole(&mut self, bytes: usize) -> Result<u64, FrameError> {
        Ok(self.take(bytes)?.iter().fold(0, |whole, byte| whole << 8 | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize, FrameError> {
        usize::try_from(self.whole(bytes)?).map_err(|_| FrameError::Truncated)
    }

    /// Members of an array that begins with `marker`; `None` if it is no array. Each member has at least one byte, so
    /// an array with more members than bytes is refused.
    fn members(&mut self, marker: Marker) -> Result<Option<usize>, FrameError> {
        let members = match marker {
            Marker::FixArray(members) => usize::from(members),
            Marker::Array16 => self.length(2)?,
            Marker::Array32 => self.length(4)?,
            _ => return Ok(None),
        };
        // Before anything is allocated for them: a forged length must not cost memory.
        if members > self.0.len() { Err(FrameError::Truncated) } else { Ok(Some(members)) }
    }

    fn array(&mut self, what: &'static str) -> Result<usize, FrameError> {
        let marker = self.marker()?;
        self.members(marker)?.ok_or(FrameError::Unexpected(what))
    }

    /// Members of a map that begins with `marker`.
    fn pairs(&mut self, marker: Marker) -> Result<Option<usize>, FrameError> {
        let pairs = match marker {
            Marker::FixMap(pairs) => usize::from(pairs),
            Marker::Map16 => self.length(2)?,
            Marker::Map32 => self.length(4)?,
            _ => return Ok(None),
        };
        if pairs > self.0.len() / 2 { Err(FrameError::Truncated) } else { Ok(Some(pairs)) }
    }

    /// Bytes of a text or byte string that begins with `marker`.
    fn string(&mut self, marker: Marker) -> Result<Option<&'a [u8]>, FrameError> {
        let length = match marker {
            Marker::FixStr(length) => usize::from(length),
            Marker::Str8 | Marker::Bin8 => self.length(1)?,
            Marker::Str16 | Marker::Bin16 => self.length(2)?,
            Marker::Str32 | Marker::Bin32 => self.length(4)?,
            _ => return Ok(None),
        };
        self.take(length).map(Some)
    }

    /// Bits of an integer that begins with `marker`; a negative one as two's complement.
    fn integer(&mut self, marker: Marker) -> Result<Option<u64>, FrameError> {
        // Shifted up and arithmetically down again, which extends the sign.
        let signed = |whole: u64, bytes: u32| {
            let unused = 64 - 8 * bytes;
            ((whole << unused).cast_signed() >> unused).cast_unsigned()
        };
        Ok(Some(match marker {
            Marker::FixPos(whole) => u64::from(whole),
            Marker::FixNeg(whole) => i64::from(whole).cast_unsigned(),
            Marker::U8 => self.whole(1)?,
            Marker::U16 => self.whole(2)?,
            Marker::U32 => self.whole(4)?,
            Marker::U64 | Marker::I64 => self.whole(8)?,
            Marker::I8 => signed(self.whole(1)?, 1),
            Marker::I16 => signed(self.whole(2)?, 2),
            Marker::I32 => signed(self.whole(4)?, 4),
            _ => return Ok(None),
        }))
    }

    /// Time; a value that is none, or not finite, becomes 0.
    fn time(&mut self) -> Result<f64, FrameError> {
        let time = match self.marker()? {
            Marker::F64 => f64::from_bits(self.whole(8)?),
            Marker::F32 => f64::from(f32::from_bits(u32::try_from(self.whole(4)?).unwrap_or(0))),
            #[expect(clippy::cast_precision_loss, reason = "whole seconds stay far below 2^53")]
            marker => self.integer(marker)?.ok_or(FrameError::Unexpected("a time"))? as f64,
        };
        Ok(if time.is_finite() { time } else { 0.0 })
    }

    /// Name of a block; `None` for nil.
    fn block(&mut self) -> Result<Option<u64>, FrameError> {
        let marker = self.marker()?;
        if marker == Marker::Null {
            return Ok(None);
        }
        if let Some(whole) = self.integer(marker)? {
            return Ok(Some(whole));
        }
        let bytes = self.string(marker)?.ok_or(FrameError::Unexpected("a block's name"))?;
        // vLLM's names are SHA-256 digests; with its own truncation it keeps the last eight bytes, so both forms agree.
        Ok(Some(bytes.iter().rev().take(8).rev().fold(0, |name, byte| name << 8 | u64::from(*byte))))
    }

    fn blocks(&mut self) -> Result<Vec<u64>, FrameError> {
        let members = self.array("a list of blocks")?;
        (0..members).map(|_| self.block()?.ok_or(FrameError::Unexpected("a block's name"))).collect()
    }

    fn tokens(&mut self) -> Result<Vec<u32>, FrameError> {
        let members = self.array("a list of tokens")?;
        let token = |rest: &mut Self| {
            let marker = rest.marker()?;
            let token = rest.integer(marker)?.and_then(|token| u32::try_from(token).ok());
            token.ok_or(FrameError::Unexpected("a token"))
        };
        (0..members).map(|_| token(self)).collect()
    }

    /// One event; `None` if its kind is unknown.
    fn event(&mut self) -> Result<Option<KvChange>, FrameError> {
        let mut fields = EventFields::default();
        let marker = self.marker()?;
        if let Some(pairs) = self.pairs(marker)? {
            for _ in 0..pairs {
                let marker = self.marker()?;
                let name = self.string(marker)?.ok_or(FrameError::Unexpected("a field's name"))?;
                self.field(EventField::named(name), &mut fields)?;
            }
        } else if let Some(members) = self.members(marker)? {
            for place in 0..members {
                // The array's kind comes first, so by the third position it is known.
                let stored = place < 2 || fields.kind == b"BlockStored";
                let field = ARRAY_FIELDS.get(place).filter(|_| stored).copied().unwrap_or(EventField::Other);
                self.field(field, &mut fields)?;
            }
        } else {
            return Err(FrameError::Unexpected("an event"));
        }
        fields.change()
    }

    fn field(&mut self, field: EventField, fields: &mut EventFields) -> Result<(), FrameError> {
        match field {
            EventField::Kind => {
                let marker = self.marker()?;
                fields.kind = self.string(marker)?.ok_or(FrameError::Unexpected("an event's kind"))?.to_vec();
            }
            // In an event of an unknown kind this may be anything.
            EventField::Blocks if !matches!(&*fields.kind, b"" | b"BlockStored" | b"BlockRemoved") => self.skip(1)?,
            EventField::Blocks => fields.blocks = Some(self.blocks()?),
            EventField::Parent => fields.parent = self.block()?,
            EventField::Tokens => fields.tokens = Some(self.tokens()?),
            EventField::BlockTokens => {
                let marker = self.marker()?;
                let size = self.integer(marker)?.and_then(|size| u32::try_from(size).ok());
                fields.block_tokens = size.ok_or(FrameError::Unexpected("a block's size"))?;
            }
            // Both the adapter's id and its name may be there.
            EventField::Adapter => fields.adapter ^= self.digest()?,
            EventField::ExtraKeys => fields.extra_keys = self.digests()?,
            EventField::Pool => fields.other_pool = self.digest()? != 0,
            EventField::Other => self.skip(1)?,
        }
        Ok(())
    }

    /// Digest of the next value; 0 for nil, for the integer 0, and for an empty list.
    fn digest(&mut self) -> Result<u64, FrameError> {
        let before = self.0;
        self.skip(1)?;
        let value = &before[..before.len() - self.0.len()];
        // The lowest bit is set, so that no value has the digest 0, which means none.
        Ok(if matches!(value, [0x00 | 0x90 | 0xc0]) { 0 } else { xxh3_64_with_seed(value, 0x6b76) | 1 })
    }

    fn digests(&mut self) -> Result<Vec<u64>, FrameError> {
        match self.marker()? {
            Marker::Null => Ok(Vec::new()),
            marker => {
                let members = self.members(marker)?.ok_or(FrameError::Unexpected("keys of blocks"))?;
                (0..members).map(|_| self.digest()).collect()
            }
        }
    }

    /// Skips `values` values.
    fn skip(&mut self, values: usize) -> Result<(), FrameError> {
        // Values left to skip, by depth: a stack on the heap, because recursion would let a nested frame overflow the
        // real one.
        let mut left = vec![values];
        while let Some(values) = left.last_mut() {
            if *values == 0 {
                left.pop();
                continue;
            }
            *values -= 1;
            let marker = self.marker()?;
            let inside = if let Some(members) = self.members(marker)? {
                members
            } else if let Some(pairs) = self.pairs(marker)? {
                pairs * 2
            } else {
                self.skip_scalar(marker)?;
                0
            };
            if left.len() > MOST_DEPTH {
                return Err(FrameError::TooDeep);
            }
            left.push(inside);
        }
        Ok(())
    }

    /// Skips one value that is neither an array nor a map.
    fn skip_scalar(&mut self, marker: Marker) -> Result<(), FrameError> {
        if self.string(marker)?.is_some() || self.integer(marker)?.is_some() {
            return Ok(());
        }
        let bytes = match marker {
            Marker::F32 => 4,
            Marker::F64 => 8,
            // An extension has a byte for its type.
            Marker::FixExt1 => 2,
            Marker::FixExt2 => 3,
            Marker::FixExt4 => 5,
            Marker::FixExt8 => 9,
            Marker::FixExt16 => 17,
            Marker::Ext8 => self.length(1)? + 1,
            Marker::Ext16 => self.length(2)? + 1,
            Marker::Ext32 => self.length(4)?.saturating_add(1),
            Marker::Reserved => return Err(FrameError::Unexpected("a value")),
            _ => 0,
        };
        self.take(bytes).map(drop)
    }
}

#[cfg(test)]
mod tests;
