//! The SQL texts that do not belong to one table of rows, as constants; those that do are in `table`. A test prepares
//! each of them against a migrated database.

/// Ends the alarms that a killed run left on, and in the next one its last generation, which has no verdict. `max`: the
/// clock may have been set back since.
pub(crate) const CLEAR_ALL_ALARMS: &str = "UPDATE alarms SET to_us = max(?1, from_us) WHERE to_us IS NULL";
pub(crate) const CUT_GENERATIONS: &str = "UPDATE generations SET verdict = 'cut', ended_at_us = max(?1, started_at_us), \
    reason = 'cut: the router was killed' WHERE verdict IS NULL";
/// Reads the state that a tuner continues from: the newest one of the policy, and its highest generation.
pub(crate) const LAST_TUNING: &str = "SELECT (SELECT g.state FROM generations g WHERE g.policy_id = p.policy_id \
    AND g.state IS NOT NULL ORDER BY g.generation_id DESC LIMIT 1), (SELECT max(g.generation_id) FROM generations g \
    WHERE g.policy_id = p.policy_id) FROM policies p WHERE p.name = ? AND p.sha256 = ?";

// state for a restart; `url IS ?` and not `=`, because a replica may have no address
pub(crate) const READ_INDEX: &str = "SELECT s.taken_at_us, s.engine_epoch, s.engine_tokens, s.blocks \
    FROM index_snapshots s JOIN replicas r ON r.replica_id = s.replica_id WHERE r.name = ? \
    ORDER BY s.taken_at_us DESC LIMIT 1";
pub(crate) const READ_LEARNED: &str = "SELECT l.at_us, l.state FROM learned l \
    JOIN replicas r ON r.replica_id = l.replica_id WHERE r.name = ? AND r.engine = ? AND r.url IS ?";
pub(crate) const READ_LAST_PROBES: &str = "SELECT p.at_us, p.rtt_us FROM probes p \
    JOIN replicas r ON r.replica_id = p.replica_id WHERE r.name = ? AND r.url IS ? AND p.at_us >= ? AND p.lost = 0 \
    AND p.rtt_us >= 0 ORDER BY p.at_us DESC LIMIT ?";

// IMMEDIATE takes the write lock at once: a deferred transaction could fail half-way, when it first writes
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(crate) const COMMIT: &str = "COMMIT";
pub(crate) const ROLLBACK: &str = "ROLLBACK";

// opening; sqlx keeps its own table of applied migrations, which says nothing about whose file this is
pub(crate) const APPLICATION_ID: &str = "PRAGMA application_id";
pub(crate) const TABLE_COUNT: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('_sqlx_migrations')";
pub(crate) const HAS_MIGRATIONS: &str =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'";
pub(crate) const SCHEMA_VERSION: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";
pub(crate) const QUICK_CHECK: &str = "PRAGMA quick_check(1)";
pub(crate) const UNFINISHED_RUN: &str =
    "SELECT run_id FROM runs WHERE ended_at_us IS NULL AND run_id = (SELECT max(run_id) FROM runs)";
pub(crate) const META: &str = "SELECT value FROM meta WHERE key = ?";
pub(crate) const PUT_META: &str =
    "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
pub(crate) const DROP_META: &str = "DELETE FROM meta WHERE key = ?";
pub(crate) const LAST_DECISION: &str = "SELECT max(id) FROM (SELECT max(decision_id) AS id FROM decisions UNION ALL \
    SELECT max(decision_id) FROM outcomes UNION ALL SELECT max(decision_id) FROM attempts)";

// a run; OR IGNORE: texts, policies and terms of an earlier run with the same digest are used again
pub(crate) const ADD_CONFIG: &str = "INSERT OR IGNORE INTO configs (sha256, text) VALUES (?, ?)";
pub(crate) const CONFIG_ID: &str = "SELECT config_id FROM configs WHERE sha256 = ?";
pub(crate) const PUT_REPLICA: &str = "INSERT INTO replicas (name, region, engine, url) VALUES (?, ?, ?, ?) \
    ON CONFLICT (name) DO UPDATE SET region = excluded.region, engine = excluded.engine, url = excluded.url \
    RETURNING replica_id";
pub(crate) const ADD_POLICY: &str = "INSERT OR IGNORE INTO policies (name, sha256, text) VALUES (?, ?, ?)";
pub(crate) const POLICY_ID: &str = "SELECT policy_id FROM policies WHERE name = ? AND sha256 = ?";
pub(crate) const ADD_TERM: &str =
    "INSERT OR IGNORE INTO terms (policy_id, slot, name, kind, unit, plugin_sha256) VALUES (?, ?, ?, ?, ?, ?)";
pub(crate) const ADD_RUN: &str = "INSERT INTO runs (started_at_us, version, config_id, policy_id, seed, router_id, pid) \
    VALUES (?, ?, ?, ?, ?, (SELECT value FROM meta WHERE key = 'router_id'), ?) RETURNING run_id";
pub(crate) const CLOSE_ALL_WEIGHTS: &str = "UPDATE weights SET to_us = max(?1, from_us) WHERE to_us IS NULL";
pub(crate) const END_RUN: &str = "UPDATE runs SET ended_at_us = ? WHERE run_id = ?";

// names on demand; the id is read separately, because OR IGNORE returns no row for a known name
pub(crate) const ADD_MODEL: &str = "INSERT OR IGNORE INTO models (name) VALUES (?)";
pub(crate) const MODEL_ID: &str = "SELECT model_id FROM models WHERE name = ?";
pub(crate) const ADD_CONSTRAINT: &str = "INSERT OR IGNORE INTO constraints (name) VALUES (?)";
pub(crate) const CONSTRAINT_ID: &str = "SELECT constraint_id FROM constraints WHERE name = ?";

// retention
/// Reads the decision after the oldest `?2` of those below `?1`.
pub(crate) const CHUNK_END: &str =
    "SELECT decision_id FROM decisions WHERE decision_id < ?1 ORDER BY decision_id LIMIT 1 OFFSET ?2";
pub(crate) const PAGES: &str = "SELECT p.page_count, f.freelist_count, s.page_size FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s";
/// Returns up to 1,000 free pages to the system: about 4 MB in one step.
pub(crate) const VACUUM_STEP: &str = "PRAGMA incremental_vacuum(1000)";
pub(crate) const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

// reading; columns are read by position, in the order of the SELECT
pub(crate) const READ_DECISIONS: &str = "SELECT decision_id, run_id, received_at_us, path, model_id, session_hash, policy_id, generation_id, seed, \
     replica_id, refusal, propensity, ties, prompt_tokens, parent_decision_id, shared_tokens, body_bytes, decide_us, \
     arm, block, counted \
     FROM decisions WHERE decision_id >= ? ORDER BY decision_id LIMIT ?";
pub(crate) const NEWEST_START: &str =
    "SELECT min(decision_id) FROM (SELECT decision_id FROM decisions ORDER BY decision_id DESC LIMIT ?)";
pub(crate) const READ_CANDIDATES: &str = "SELECT decision_id, replica_id, excluded_by, cost_milli, rtt_us, rtt_source, cached_tokens, queued_tokens, \
     queued_uncached_tokens, inflight, report_age_ms, s1_milli, s2_milli, s3_milli, s4_milli, s5_milli, s6_milli, \
     s7_milli, s8_milli, c1_milli, c2_milli, c3_milli, c4_milli, c5_milli, c6_milli, c7_milli, c8_milli \
     FROM candidates WHERE decision_id BETWEEN ? AND ? AND attempt = 1 ORDER BY decision_id, position";
pub(crate) const READ_CANDIDATE_TERMS: &str = "SELECT decision_id, replica_id, slot, signal_milli, cost_milli FROM candidate_terms \
     WHERE decision_id BETWEEN ? AND ? AND attempt = 1 ORDER BY decision_id, replica_id, slot";
pub(crate) const READ_SHADOWS: &str = "SELECT decision_id, policy_id, replica_id, cost_milli FROM shadows WHERE decision_id BETWEEN ? AND ? \
     ORDER BY decision_id, policy_id";
pub(crate) const READ_OUTCOMES: &str = "SELECT decision_id, status, error, ttft_us, first_byte_us, e2e_us, itl_mean_us, itl_p99_us, prompt_tokens, \
     cached_tokens, completion_tokens, predicted_ttft_us, predicted_cached_tokens, \
     itl_1, itl_2, itl_3, itl_4, itl_5, itl_6, itl_7, itl_8 \
     FROM outcomes WHERE decision_id >= ? ORDER BY decision_id LIMIT ?";
pub(crate) const READ_ATTEMPTS: &str = "SELECT decision_id, attempt, replica_id, connection, connect_us, sent_us, first_byte_us, ended_us, status, error \
     FROM attempts WHERE decision_id >= ? ORDER BY decision_id, attempt LIMIT ?";
/// Reads one row per request. The round trip is the one in the chosen replica's candidate row, which the decision used.
pub(crate) const READ_REQUESTS: &str = "SELECT d.decision_id, d.run_id, d.received_at_us, d.path, d.session_hash, d.prompt_tokens, d.parent_decision_id, \
     d.shared_tokens, d.replica_id, (SELECT count(*) FROM attempts a WHERE a.decision_id = d.decision_id), c.rtt_us, \
     o.error, o.ttft_us, o.e2e_us, o.prompt_tokens, o.cached_tokens, o.predicted_cached_tokens, o.completion_tokens \
     FROM decisions d LEFT JOIN outcomes o ON o.decision_id = d.decision_id \
     LEFT JOIN candidates c ON c.decision_id = d.decision_id AND c.attempt = 1 AND c.replica_id = d.replica_id \
     WHERE d.decision_id >= ? ORDER BY d.decision_id LIMIT ?";
pub(crate) const NEWEST_RUN: &str = "SELECT r.run_id, r.version, p.name, p.sha256, c.sha256, r.seed, \
     (SELECT max(w.generation_id) FROM weights w WHERE w.run_id = r.run_id AND w.policy_id = r.policy_id) \
     FROM runs r LEFT JOIN configs c ON c.config_id = r.config_id LEFT JOIN policies p ON p.policy_id = r.policy_id \
     ORDER BY r.run_id DESC LIMIT 1";
pub(crate) const FALLBACKS: &str = "SELECT count(*), coalesce(sum(d.refusal IS NOT NULL), 0), \
     coalesce(sum(EXISTS (SELECT 1 FROM candidates c JOIN constraints k ON k.constraint_id = c.excluded_by \
     WHERE c.decision_id = d.decision_id AND k.name LIKE 'relaxed:%')), 0), \
     coalesce(sum(EXISTS (SELECT 1 FROM attempts a WHERE a.decision_id = d.decision_id AND a.attempt > 1)), 0) \
     FROM decisions d WHERE d.decision_id BETWEEN ? AND ? AND d.path <> (SELECT path FROM paths WHERE name = 'other')";
pub(crate) const READ_POLICIES: &str = "SELECT policy_id, name, sha256, text FROM policies";
pub(crate) const READ_TERMS: &str =
    "SELECT policy_id, name, kind, unit, plugin_sha256 FROM terms ORDER BY policy_id, slot";
pub(crate) const READ_REPLICAS: &str = "SELECT replica_id, name FROM replicas";
pub(crate) const READ_MODELS: &str = "SELECT model_id, name FROM models";
pub(crate) const READ_CONSTRAINTS: &str = "SELECT constraint_id, name FROM constraints";
pub(crate) const READ_WEIGHTS: &str = "SELECT max(value) FROM weights WHERE run_id = ? AND policy_id = ? \
    AND generation_id = ? GROUP BY slot ORDER BY slot";

/// Reads, for the build of each policy that was used last, the weights of the generation that was accepted last, or
/// else the initial ones. A build that came back after another keeps its old id, so the newest is found by time.
pub(crate) const READ_INCUMBENTS: &str = "WITH newest AS (SELECT p.name, w.policy_id, max(w.from_us) \
    FROM weights w JOIN policies p ON p.policy_id = w.policy_id GROUP BY p.name), \
    won AS (SELECT n.policy_id, coalesce((SELECT max(g.generation_id) FROM generations g \
    WHERE g.policy_id = n.policy_id AND g.verdict = 'accepted'), 0) AS generation_id FROM newest n) \
    SELECT p.name, p.sha256, won.generation_id, t.name, (SELECT w.value FROM weights w WHERE w.policy_id = won.policy_id \
    AND w.generation_id = won.generation_id AND w.slot = t.slot ORDER BY w.from_us DESC LIMIT 1) AS value \
    FROM won JOIN policies p ON p.policy_id = won.policy_id JOIN terms t ON t.policy_id = won.policy_id \
    WHERE value IS NOT NULL ORDER BY p.name, t.slot";
pub(crate) const READ_NEWEST_RATES: &str = "SELECT r.name, k.name, a.value, a.low, a.high, a.samples FROM rates a \
    JOIN replicas r ON r.replica_id = a.replica_id JOIN rate_kinds k ON k.kind = a.kind \
    WHERE a.at_us = (SELECT max(b.at_us) FROM rates b WHERE b.replica_id = a.replica_id AND b.kind = a.kind) \
    ORDER BY r.name, k.kind";

/// All texts, for the test that prepares them.
#[cfg(test)]
pub(crate) const SINGLE: &[&str] = &[
    BEGIN,
    COMMIT,
    ROLLBACK,
    APPLICATION_ID,
    TABLE_COUNT,
    HAS_MIGRATIONS,
    SCHEMA_VERSION,
    QUICK_CHECK,
    META,
    PUT_META,
    DROP_META,
    UNFINISHED_RUN,
    LAST_DECISION,
    ADD_CONFIG,
    CONFIG_ID,
    PUT_REPLICA,
    ADD_POLICY,
    POLICY_ID,
    ADD_TERM,
    ADD_RUN,
    CLOSE_ALL_WEIGHTS,
    END_RUN,
    CLEAR_ALL_ALARMS,
    CUT_GENERATIONS,
    LAST_TUNING,
    READ_INDEX,
    READ_LEARNED,
    READ_LAST_PROBES,
    ADD_MODEL,
    MODEL_ID,
    ADD_CONSTRAINT,
    CONSTRAINT_ID,
    CHUNK_END,
    PAGES,
    VACUUM_STEP,
    CHECKPOINT,
    READ_DECISIONS,
    NEWEST_START,
    READ_CANDIDATES,
    READ_CANDIDATE_TERMS,
    READ_SHADOWS,
    READ_OUTCOMES,
    READ_ATTEMPTS,
    READ_REQUESTS,
    NEWEST_RUN,
    FALLBACKS,
    READ_POLICIES,
    READ_TERMS,
    READ_REPLICAS,
    READ_MODELS,
    READ_CONSTRAINTS,
    READ_WEIGHTS,
    READ_INCUMBENTS,
    READ_NEWEST_RATES,
];
