//! Holders of stored objects: which replica has a response that a request continues, a file, or a batch.
//!
//! Ids are learned from the responses that created them, and kept as hashes in two generations: when the young one is
//! full it becomes the old one, and ids not used since are forgotten. For an unknown id, all replicas are tried in
//! turn.

use std::collections::HashMap;

use memchr::memmem;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use gorgo_routing::model::{ApiPath, ReplicaId};

/// Ids per generation.
const GENERATION_IDS: usize = 50_000;
/// Bytes of a response in which its id must appear to be learned.
const HEAD_BYTES: usize = 4 << 10;
/// Paths whose objects live in one engine.
const STATEFUL_PATHS: [&str; 3] = ["/v1/responses", "/v1/files", "/v1/batches"];

/// Known holders.
#[derive(Debug, Default)]
pub(in crate::edge) struct ObjectOwners {
    generations: Mutex<[HashMap<u64, ReplicaId>; 2]>,
}

impl ObjectOwners {
    pub(in crate::edge) fn record(&self, id: &[u8], replica: ReplicaId) {
        let mut generations = self.generations.lock();
        if generations[0].len() >= GENERATION_IDS {
            // The old map is emptied and becomes the young one, which keeps its allocation.
            generations.swap(0, 1);
            generations[0].clear();
        }
        generations[0].insert(xxh3_64(id), replica);
    }

    pub(in crate::edge) fn owner_of(&self, id: &[u8]) -> Option<ReplicaId> {
        // In a block, so that the lock is released before `learn` takes it again.
        let found = {
            let generations = self.generations.lock();
            let key = xxh3_64(id);
            generations[0].get(&key).or_else(|| generations[1].get(&key)).copied()
        };
        // Used ids move to the young generation, so that a long conversation is not forgotten.
        if let Some(replica) = found {
            self.record(id, replica);
        }
        found
    }
}

/// Object that a path names, as in `/v1/responses/ID/cancel`.
pub(in crate::edge) fn object_in_path(path: &str) -> Option<&str> {
    let rest = STATEFUL_PATHS.iter().find_map(|kept| path.strip_prefix(kept)?.strip_prefix('/'))?;
    rest.split('/').next().filter(|id| !id.is_empty())
}

/// Object that a body refers to: the response to be continued, the file of a batch.
pub(in crate::edge) fn object_in_body<'a>(path: &str, body: &'a [u8]) -> Option<&'a [u8]> {
    let key: &[u8] = match path {
        "/v1/responses" => b"\"previous_response_id\"",
        "/v1/batches" => b"\"input_file_id\"",
        _ => return None,
    };
    string_member(body, key)
}

/// Returns `true` if a response on this path creates an object whose id is worth remembering.
pub(in crate::edge) fn creates_objects(api: ApiPath, path: &str) -> bool {
    api == ApiPath::Responses || STATEFUL_PATHS.iter().any(|kept| path.starts_with(kept))
}

/// Finds the id in the head of a response: the first member `id`, in JSON and in a stream's first event alike.
#[derive(Debug)]
pub(in crate::edge) struct ObjectIdScanner {
    replica: ReplicaId,
    head: Vec<u8>,
    finished: bool,
}

impl ObjectIdScanner {
    /// Scanner for a response of this replica.
    pub(in crate::edge) const fn new(replica: ReplicaId) -> Self {
        Self { replica, head: Vec::new(), finished: false }
    }

    /// Takes the next bytes; returns the id and its holder, once, when it has passed.
    pub(in crate::edge) fn push(&mut self, piece: &[u8]) -> Option<(Vec<u8>, ReplicaId)> {
        if self.finished {
            return None;
        }
        let room = HEAD_BYTES - self.head.len();
        // The rest of a long response is never buffered.
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        let id = string_member(&self.head, b"\"id\"").map(<[u8]>::to_vec);
        if id.is_some() || self.head.len() == HEAD_BYTES {
            self.finished = true;
            self.head = Vec::new();
        }
        id.map(|id| (id, self.replica))
    }
}

/// Value of the first member of this name that is a complete string without escapes.
fn string_member<'a>(json: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let after = json[memmem::find(json, key)? + key.len()..].trim_ascii_start().strip_prefix(b":")?;
    let value = after.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr2(b'"', b'\\', value)?;
    // Engines make ids without escapes; a string with one is something else, and an empty one names nothing.
    (value[end] == b'"' && end > 0).then(|| &value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_named_by_paths_and_bodies() {
        assert_eq!(object_in_path("/v1/responses/resp_1/cancel"), Some("resp_1"));
        assert_eq!(object_in_path("/v1/files/file-1"), Some("file-1"));
        for other in ["/v1/responses", "/v1/responses/", "/v1/responsesx/y", "/v1/chat/completions"] {
            assert_eq!(object_in_path(other), None, "{other}");
        }
        let body = br#"{"input":"\"previous_response_id\":\"no\"","previous_response_id" : "resp_1"}"#;
        assert_eq!(object_in_body("/v1/responses", body), Some(&b"resp_1"[..]));
        assert_eq!(object_in_body("/v1/responses", br#"{"previous_response_id":null}"#), None);
        assert_eq!(object_in_body("/v1/chat/completions", body), None);
    }

    #[test]
    fn an_id_is_found_across_pieces_once() {
        let mut seeker = ObjectIdScanner::new(ReplicaId(3));
        assert_eq!(seeker.push(br#"{"object":"response","i"#), None);
        assert_eq!(seeker.push(br#"d":"resp_"#), None);
        assert_eq!(seeker.push(br#"1","output":[{"id":"x"}]}"#), Some((b"resp_1".to_vec(), ReplicaId(3))));
        assert_eq!(seeker.push(br#""id":"y""#), None);
        let mut endless = ObjectIdScanner::new(ReplicaId(3));
        assert_eq!(endless.push(&[b' '; 100_000]), None);
        assert_eq!(endless.push(br#""id":"y""#), None);
    }

    #[test]
    fn holders_are_bounded_and_the_used_stay() {
        let holders = ObjectOwners::default();
        holders.record(b"used", ReplicaId(1));
        holders.record(b"unused", ReplicaId(2));
        for index in 0_u32..200_000 {
            holders.record(&index.to_le_bytes(), ReplicaId(0));
            if index % 10_000 == 0 {
                assert_eq!(holders.owner_of(b"used"), Some(ReplicaId(1)));
            }
        }
        assert_eq!(holders.owner_of(b"unused"), None);
        let generations = holders.generations.lock();
        assert!(generations.iter().all(|generation| generation.len() <= GENERATION_IDS));
    }
}
