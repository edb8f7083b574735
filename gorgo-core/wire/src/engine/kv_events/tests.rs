//! A publisher on loopback, the real subscriber, and the index of a real router.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::msgpack_writer::MsgpackWriter;
use super::*;
use crate::engine::ServedRequest;
use crate::engine::monitor::mock::{MockEngine, RecordingContext, reply};
use gorgo_routing::config::{IndexConfig, ProbeConfig, ScrapeConfig};
use gorgo_routing::model::arbitrary::fleet;
use gorgo_routing::model::{EngineKind, EventKind};
use gorgo_routing::policy::{KindRegistry, Router, RouterSetup, build};

const R: ReplicaId = ReplicaId(0);
const SIZE: usize = 4;
/// Time limit for every wait in these tests.
const LIMIT: Duration = Duration::from_secs(20);

fn router() -> Router {
    let setup = RouterSetup {
        fleet: fleet(2),
        models: vec![vec![Arc::from("m")]; 2],
        secret: 42,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    };
    Router::new(setup, build(&KindRegistry::built_in(), &[], "gorgo", &fleet(2)).policies.unwrap())
}

#[derive(Debug, PartialEq)]
enum ReportedChange {
    Change(KvChange),
    Learned(usize),
    Settled,
}

/// Router, with the events that it received.
struct RecordingFacts {
    router: Router,
    told: UnboundedSender<ReportedChange>,
}

impl CacheFacts for RecordingFacts {
    fn apply(&self, replica: ReplicaId, changes: &[KvChange]) {
        self.router.apply_cache_changes(replica, changes);
        changes.iter().for_each(|change| drop(self.told.send(ReportedChange::Change(change.clone()))));
    }
    fn is_exact(&self, replica: ReplicaId) -> bool {
        self.router.is_cache_known(replica)
    }
    fn moment(&self) -> u64 {
        self.router.index_stamp()
    }
    fn is_mapped(&self, replica: ReplicaId, prompt: &ParsedRequest) -> bool {
        self.router.is_mapped(replica, prompt)
    }
    fn learn(&self, prompt: &ParsedRequest, decision: DecisionId, tokens: &[u32]) {
        self.router.learn_tokens(prompt, decision, tokens);
        let _ = self.told.send(ReportedChange::Learned(tokens.len()));
    }
    fn settle(&self, prompt: &ParsedRequest, decision: DecisionId, since: u64) {
        self.router.reconcile_cached(prompt, decision, since);
        let _ = self.told.send(ReportedChange::Settled);
    }
}

/// Blocks of text that the index believes to be cached at the replica.
fn held(facts: &RecordingFacts) -> usize {
    facts.router.export_index(R, usize::MAX).iter().map(|used| used.blocks.len()).sum()
}

/// A prompt of some 4,000 bytes in sixteen blocks of text, 1,000 tokens in 250 blocks of four.
fn prompt(router: &Router, seed: u32) -> (Arc<ParsedRequest>, Vec<u32>, Bytes) {
    let text = format!("{seed:04x}").repeat(1_030);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let prompt = router.parse_request("/v1/chat/completions", body.as_bytes(), None, None).unwrap();
    assert_eq!(prompt.chain.len(), 16);
    (Arc::new(prompt), (seed * 10_000..seed * 10_000 + 1_032).collect(), Bytes::from(body))
}

/// Name that engines of these tests give to a block.
fn names(tokens: &[u32]) -> Vec<i64> {
    let name = |block: &[u32]| -i64::from(block[0]) - 1_000_000_000_000;
    tokens.chunks_exact(SIZE).map(name).collect()
}

/// Batch with one event: blocks are stored from block `from` on, in SGLang's form.
fn stored(made: f64, tokens: &[u32], from: usize) -> Vec<u8> {
    let names = names(tokens);
    let count = |length: usize| u32::try_from(length).unwrap();
    let mut pack = MsgpackWriter::default().array(2).time(made).array(1).array(6).text("BlockStored");
    pack = pack.array(count(names.len() - from));
    for name in &names[from..] {
        pack = pack.whole(*name);
    }
    pack = if from == 0 { pack.nil() } else { pack.whole(names[from - 1]) };
    let tokens = &tokens[from * SIZE..names.len() * SIZE];
    pack = pack.array(count(tokens.len()));
    for token in tokens {
        pack = pack.whole(i64::from(*token));
    }
    pack.whole(SIZE as i64).nil().0
}

fn removed(made: f64, name: i64) -> Vec<u8> {
    MsgpackWriter::default().array(2).time(made).array(1).array(2).text("BlockRemoved").array(1).whole(name).0
}

fn cleared(made: f64) -> Vec<u8> {
    MsgpackWriter::default().array(2).time(made).array(1).map(1).text("type").text("AllBlocksCleared").0
}

type PublishedBatches = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// An engine's publisher.
struct Publisher {
    socket: PubSocket,
    /// Batches that it can replay.
    kept: PublishedBatches,
}

impl Publisher {
    async fn bound(address: &str) -> (Self, String) {
        let mut socket = PubSocket::new();
        let address = socket.bind(address).await.unwrap().to_string();
        (Self { socket, kept: PublishedBatches::default() }, address)
    }

    /// Answers replays like vLLM.
    async fn answering(&self, tasks: &tokio_util::task::TaskTracker) -> String {
        let mut socket = RouterSocket::new();
        let address = socket.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
        let kept = Arc::clone(&self.kept);
        tasks.spawn(async move {
            while let Ok(question) = socket.recv().await {
                let frames = question.into_vec();
                let [asker, empty, from] = &frames[..] else { continue };
                let from = u64::from_be_bytes(from[..].try_into().unwrap());
                let kept: Vec<_> = kept.lock().iter().filter(|(number, _)| *number >= from).cloned().collect();
                let end = (u64::MAX, Vec::new());
                for (number, payload) in kept.into_iter().chain([end]) {
                    let number = Bytes::copy_from_slice(&number.to_be_bytes());
                    let answer = vec![asker.clone(), empty.clone(), Bytes::from("kv"), number, payload.into()];
                    socket.send(ZmqMessage::try_from(answer).unwrap()).await.unwrap();
                }
            }
        });
        address
    }

    fn keep(&self, number: u64, payload: &[u8]) {
        let mut kept = self.kept.lock();
        kept.retain(|(other, _)| *other != number);
        kept.push((number, payload.to_vec()));
    }

    async fn send(&mut self, number: u64, payload: &[u8]) {
        self.keep(number, payload);
        let frames = vec![Bytes::from("kv"), Bytes::copy_from_slice(&number.to_be_bytes()), payload.to_vec().into()];
        self.socket.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
    }

    /// Sends until something was received, since the subscriber may not listen yet. A second copy counts as a repeat.
    async fn send_until_heard(
        &mut self,
        number: u64,
        payload: &[u8],
        heard: &mut UnboundedReceiver<ReportedChange>,
    ) -> ReportedChange {
        timeout(LIMIT, async {
            loop {
                self.send(number, payload).await;
                if let Ok(told) = timeout(Duration::from_millis(50), heard.recv()).await {
                    return told.unwrap();
                }
            }
        })
        .await
        .expect("it is heard in time")
    }
}

async fn next(heard: &mut UnboundedReceiver<ReportedChange>) -> KvChange {
    let told = timeout(LIMIT, heard.recv()).await.expect("it is told in time").unwrap();
    let ReportedChange::Change(change) = told else { panic!("{told:?}") };
    change
}

struct ListenerFixture {
    facts: Arc<RecordingFacts>,
    told: UnboundedReceiver<ReportedChange>,
    tally: Arc<KvEventCounters>,
    heard: RecordingContext,
}

impl ListenerFixture {
    fn new() -> Self {
        let (sender, told) = unbounded_channel();
        let facts = Arc::new(RecordingFacts { router: router(), told: sender });
        Self { facts, told, tally: Arc::default(), heard: RecordingContext::new() }
    }

    fn listen(&self, events: String, replay: Option<String>) {
        let source = KvEventSource { replica: R, name: "a".into(), events, replay };
        let (facts, tally) = (Arc::clone(&self.facts), Arc::clone(&self.tally));
        let senses = self.heard.senses.clone();
        senses.tasks.clone().spawn(listen_loop(source, facts, senses, tally));
    }

    async fn heard_next(&mut self) -> Option<ReportedChange> {
        timeout(LIMIT, self.told.recv()).await.expect("it is told in time")
    }

    fn count(&self) -> KvEventStats {
        self.tally.count("a".into(), self.facts.is_exact(R))
    }

    /// The prompt's tokens are known.
    fn learn(&mut self, prompt: &ParsedRequest, tokens: &[u32]) {
        self.facts.router.learn_tokens(prompt, DecisionId(1), tokens);
    }
}

impl Drop for ListenerFixture {
    fn drop(&mut self) {
        self.heard.senses.stop.cancel();
    }
}

#[tokio::test]
async fn gaps_repeats_bad_frames_a_restart_and_a_clear() {
    let mut ground = ListenerFixture::new();
    let (mut publisher, events) = Publisher::bound("tcp://127.0.0.1:0").await;
    let replay = publisher.answering(&ground.heard.senses.tasks).await;
    ground.listen(events, Some(replay));
    let (prompt, tokens, _) = prompt(&ground.facts.router, 1);

    // The engine has published nothing yet, or only the first batch: either way that is all of it.
    assert_eq!(next(&mut ground.told).await, KvChange::CompleteFromStart);
    let first = publisher.send_until_heard(0, &stored(1.0, &tokens[..516], 0), &mut ground.told).await;
    if first == ReportedChange::Change(KvChange::CompleteFromStart) {
        assert!(matches!(next(&mut ground.told).await, KvChange::Stored(_)));
    }
    ground.learn(&prompt, &tokens);
    ground.facts.settle(&prompt, DecisionId(1), u64::MAX);
    assert_eq!(ground.heard_next().await, Some(ReportedChange::Settled));
    assert_eq!(held(&ground.facts), 8, "516 of 1,032 tokens: half of the text");

    // Batch 1 is lost and batch 2 reveals it: the engine is asked, and all are applied in order.
    publisher.keep(1, &stored(2.0, &tokens, 129));
    publisher.send(2, &removed(3.0, names(&tokens)[257])).await;
    assert!(matches!(next(&mut ground.told).await, KvChange::Stored(_)));
    assert!(matches!(next(&mut ground.told).await, KvChange::Removed(_)));
    assert_eq!(held(&ground.facts), 16, "no text ends in the block that went");
    assert_eq!((ground.count().gaps, ground.count().exact), (1, true));

    // A repeat is skipped; what follows it is applied.
    publisher.send(2, &removed(3.0, names(&tokens)[257])).await;
    let end = names(&tokens)[64];
    publisher.send(3, &removed(4.0, end)).await;
    assert_eq!(next(&mut ground.told).await, KvChange::Removed(vec![end.cast_unsigned()]));
    assert_eq!(held(&ground.facts), 3, "the fourth block of text ended there; what follows on it is gone, too");

    // Frames of another form are counted; a batch that cannot be read is a loss.
    publisher.socket.send(ZmqMessage::from(Bytes::from("hello"))).await.unwrap();
    publisher.send(4, b"\x93\x01").await;
    assert_eq!(next(&mut ground.told).await, KvChange::EventsLost);
    assert_eq!((ground.count().bad_frames, ground.count().exact), (2, false));
    assert_eq!(held(&ground.facts), 3, "what was believed stays believed");

    // The engine restarts with an empty cache; then its cache is cleared.
    publisher.kept.lock().clear();
    publisher.send(0, &stored(9.0, &tokens, 0)).await;
    assert_eq!(next(&mut ground.told).await, KvChange::Restarted);
    assert!(matches!(next(&mut ground.told).await, KvChange::Stored(_)));
    assert_eq!((held(&ground.facts), ground.count().exact), (16, true));
    publisher.send(1, &cleared(10.0)).await;
    assert_eq!(next(&mut ground.told).await, KvChange::Cleared);
    assert_eq!((held(&ground.facts), ground.count().exact), (0, true));

    let kinds: Vec<EventKind> = ground.heard.notes().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [EventKind::MissingSignal, EventKind::MissingSignal, EventKind::ReplicaRestarted]);
    let count = ground.count();
    assert!(count.connected && count.batches == 6 && count.replays == 2, "{count:?}");
}

#[tokio::test]
async fn without_a_replay_a_gap_is_a_loss_and_it_goes_on() {
    let mut ground = ListenerFixture::new();
    let folder = tempfile::tempdir().unwrap();
    let (mut publisher, events) = Publisher::bound(&format!("ipc://{}/kv", folder.path().display())).await;
    ground.listen(events, None);
    let (prompt, tokens, _) = prompt(&ground.facts.router, 1);
    assert_eq!(
        publisher.send_until_heard(5, &stored(1.0, &tokens, 0), &mut ground.told).await,
        ReportedChange::Change(KvChange::EventsLost),
        "what came before is not known"
    );
    assert!(matches!(next(&mut ground.told).await, KvChange::Stored(_)));
    ground.learn(&prompt, &tokens);
    ground.facts.settle(&prompt, DecisionId(1), u64::MAX);
    assert_eq!((ground.heard_next().await, held(&ground.facts)), (Some(ReportedChange::Settled), 16));
    publisher.send(9, &cleared(2.0)).await;
    assert_eq!(next(&mut ground.told).await, KvChange::EventsLost);
    assert_eq!(next(&mut ground.told).await, KvChange::Cleared);
    let count = ground.count();
    assert_eq!((held(&ground.facts), count.exact, count.gaps, count.replays), (0, true, 2, 0));
    let notes = ground.heard.notes();
    assert!(matches!(&notes[..], [(EventKind::MissingSignal, text)] if text.contains("kv_replay")), "{notes:?}");
}

#[tokio::test]
async fn an_engine_that_connects_to_the_router_and_comes_back() {
    let mut ground = ListenerFixture::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    ground.listen(format!("tcp://*:{port}"), None);
    let tokens: Vec<u32> = (0..8).collect();
    for life in [1.0, 2.0] {
        let mut publisher = Publisher { socket: PubSocket::new(), kept: PublishedBatches::default() };
        publisher.socket.connect(&format!("tcp://127.0.0.1:{port}")).await.unwrap();
        let first = publisher.send_until_heard(0, &stored(life, &tokens, 0), &mut ground.told).await;
        let begins = if life == 1.0 { KvChange::CompleteFromStart } else { KvChange::Restarted };
        assert_eq!(first, ReportedChange::Change(begins));
        assert!(matches!(next(&mut ground.told).await, KvChange::Stored(_)));
        assert!(ground.count().connected && ground.count().exact);
        drop(publisher);
        // Its connection breaks: events in the meantime are lost without notice.
        assert_eq!(next(&mut ground.told).await, KvChange::EventsLost);
        assert!(!ground.count().connected);
    }
}

#[tokio::test]
async fn a_publisher_that_is_not_there_yet_is_found() {
    let mut ground = ListenerFixture::new();
    let folder = tempfile::tempdir().unwrap();
    let address = format!("ipc://{}/kv", folder.path().display());
    ground.listen(address.clone(), None);
    let tokens: Vec<u32> = (0..8).collect();
    // It is reported once that nothing listens there.
    let said = async {
        loop {
            let notes = ground.heard.notes();
            if !notes.is_empty() {
                return notes;
            }
            tokio::task::yield_now().await;
        }
    };
    let notes = timeout(LIMIT, said).await.expect("it is said in time");
    assert!(matches!(&notes[..], [(EventKind::MissingSignal, text)] if text.contains(&address)), "{notes:?}");
    let (mut publisher, _) = Publisher::bound(&address).await;
    let first = publisher.send_until_heard(0, &stored(1.0, &tokens, 0), &mut ground.told).await;
    assert_eq!(first, ReportedChange::Change(KvChange::CompleteFromStart));
    assert_eq!(ground.heard.notes(), []);
}

/// Mock whose `/tokenize` gives this answer.
async fn tokenizer(status: u16, body: String) -> MockEngine {
    MockEngine::start(move |request| {
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/tokenize"));
        assert_eq!(request.headers()["content-type"], "application/json");
        reply(status, body.clone())
    })
    .await
}

fn taught(ground: &ListenerFixture, mock: &MockEngine) -> TokenizeQueue {
    let facts: Arc<dyn CacheFacts> = Arc::clone(&ground.facts) as _;
    let mut lessons = TokenizeQueue::new(2, facts);
    let watched = mock.watched(EngineKind::Vllm, None);
    let pupil = lessons.add_replica(R, "a".into(), watched.endpoint, Arc::clone(&ground.tally));
    ground.heard.senses.tasks.spawn(pupil.run(ground.heard.senses.clone()));
    lessons
}

#[tokio::test]
async fn an_answered_prompt_is_asked_for_once_and_the_index_set_right() {
    let mut ground = ListenerFixture::new();
    let (prompt, tokens, body) = prompt(&ground.facts.router, 1);
    let told = serde_json::json!({"count": tokens.len(), "max_model_len": 4096, "tokens": tokens}).to_string();
    let mock = tokenizer(200, told).await;
    let lessons = taught(&ground, &mock);
    // The engine has cached a quarter of it, which the index does not know; the router believes that all of it is
    // there.
    let batch = decode::decode_batch(&stored(1.0, &tokens[..260], 0)).unwrap();
    ground.facts.router.apply_cache_changes(R, &[KvChange::CompleteFromStart]);
    ground.facts.router.apply_cache_changes(R, &batch.changes);
    assert_eq!(held(&ground.facts), 0);
    let served = ServedRequest { replica: R, decision: DecisionId(3), prompt: &prompt, body: &body };
    lessons.submit(&served);
    assert_eq!(ground.heard_next().await, Some(ReportedChange::Learned(tokens.len())));
    assert_eq!(ground.heard_next().await, Some(ReportedChange::Settled));
    assert_eq!(held(&ground.facts), 4);
    // The same request again: its tokens are known.
    lessons.submit(&served);
    assert_eq!(ground.heard_next().await, Some(ReportedChange::Settled));
    let count = ground.count();
    assert_eq!((count.mapped, count.unmapped, count.answers_since_batch), (1, 0, 2));
    // Another replica has no events, and token ids are not requested.
    lessons.submit(&ServedRequest { replica: ReplicaId(1), ..served });
    let ids = Arc::new(ParsedRequest { exact_tokens: Some(9), ..(*prompt).clone() });
    lessons.submit(&ServedRequest { prompt: &ids, ..served });
    assert_eq!((ground.count().answers_since_batch, mock.connections()), (3, 1));
}

#[tokio::test]
async fn an_engine_that_tells_no_tokens_is_complained_of_once_and_seldom_asked() {
    let mut ground = ListenerFixture::new();
    let mock = tokenizer(400, r#"{"message":"the secret prompt"}"#.to_owned()).await;
    let lessons = taught(&ground, &mock);
    for seed in 0..10 {
        let (prompt, _, body) = prompt(&ground.facts.router, seed);
        lessons.submit(&ServedRequest { replica: R, decision: DecisionId(3), prompt: &prompt, body: &body });
        assert_eq!(ground.heard_next().await, Some(ReportedChange::Settled));
    }
    assert_eq!((ground.count().unmapped, ground.count().mapped), (10, 0));
    let notes = ground.heard.notes();
    let [(EventKind::MissingSignal, text)] = &notes[..] else { panic!("{notes:?}") };
    assert!(text.contains("/v1/chat/completions (400 to POST /tokenize)") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn what_waits_is_bounded() {
    let ground = ListenerFixture::new();
    let facts: Arc<dyn CacheFacts> = Arc::clone(&ground.facts) as _;
    let mut lessons = TokenizeQueue::new(1, facts);
    let mock = tokenizer(200, String::new()).await;
    // Nothing is learned.
    let endpoint = mock.watched(EngineKind::Vllm, None).endpoint;
    let _pupil = lessons.add_replica(R, "a".into(), endpoint, Arc::clone(&ground.tally));
    let (prompt, _, body) = prompt(&ground.facts.router, 1);
    for _ in 0..200 {
        lessons.submit(&ServedRequest { replica: R, decision: DecisionId(3), prompt: &prompt, body: &body });
    }
    assert_eq!(ground.count().unmapped, 200 - 128);
    let large = Bytes::from(vec![b' '; 40 << 20]);
    lessons.submit(&ServedRequest { replica: R, decision: DecisionId(3), prompt: &prompt, body: &large });
    assert_eq!(ground.count().unmapped, 200 - 128 + 1);
}
