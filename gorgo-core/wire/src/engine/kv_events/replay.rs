//! Requests from an engine the batches that it still has.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use super::decode::{self, KvEventBatch};
use super::sequence::BatchStamp;

/// Time for the next batch of an answer: an engine looks for such requests ten times a second, and between two steps of
/// its model.
const LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are read; vLLM and SGLang keep 10,000 batches.
const MOST_BYTES: usize = 256 << 20;

/// Answer, as far as it was received.
#[derive(Debug, Default)]
pub(super) struct ReplayedBatches {
    pub(super) stamps: Vec<BatchStamp>,
    /// One for each of `seen`.
    pub(super) batches: Vec<KvEventBatch>,
    /// True if it was received to its end, and all of it could be read.
    pub(super) complete: bool,
    pub(super) bad_frames: u64,
}

/// Requests all batches from a number on. Batches that the engine no longer has are missing in the answer.
pub(super) async fn request_replay(address: &str, from: u64) -> ReplayedBatches {
    let mut answer = ReplayedBatches::default();
    // After any error the answer is incomplete, which `whole` already says.
    let _ = take(address, from, &mut answer).await;
    answer
}

async fn take(address: &str, from: u64, answer: &mut ReplayedBatches) -> Result<(), ZmqError> {
    let mut options = SocketOptions::default();
    options.connect_timeout(LIMIT);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(address).await?;
    let mut question = ZmqMessage::from(Bytes::new());
    question.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
    socket.send(question).await?;
    let (mut bytes, mut readable) = (0_usize, true);
    while let Ok(message) = timeout(LIMIT, socket.recv()).await {
        // `["", topic, number, batch]`; older engines omit the topic.
        let frames = message?.into_vec();
        let [.., number, payload] = &frames[..] else {
            (answer.bad_frames, readable) = (answer.bad_frames + 1, false);
            continue;
        };
        match (decode::batch_number(number), decode::decode_batch(payload)) {
            // The end marker has no batch, so it comes before the others are judged.
            (Ok(-1), _) => {
                answer.complete = readable;
                return Ok(());
            }
            (Ok(number), Ok(batch)) if number >= 0 => {
                answer.stamps.push(BatchStamp { number: number.cast_unsigned(), created_secs: batch.created_secs });
                answer.batches.push(batch);
            }
            _ => (answer.bad_frames, readable) = (answer.bad_frames + 1, false),
        }
        bytes = bytes.saturating_add(payload.len());
        // An engine that never ends its answer; what came so far is used.
        if bytes > MOST_BYTES {
            return Ok(());
        }
        // A long answer must not delay requests on this thread.
        tokio::task::yield_now().await;
    }
    Ok(())
}
