-- The history of a router: for each request the chosen replica, the candidates, the reasons and the outcome.
--
-- Units: `_us` microseconds, `_milli` thousandths of the unit that the term declares. Moments (`…at_us`, `from_us`,
-- `to_us`) count from the Unix epoch, other `_us` from the arrival of the request's head. Tables hold integers;
-- the views at the end divide, name and join, and they are what people and programs read. README.md explains each column.
--
-- No foreign keys: a row is kept even if a full queue dropped its parent. After a release, a change of this schema is a
-- new file.

PRAGMA application_id = 1735357031;

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES
    ('secret', lower(hex(randomblob(8)))),
    ('router_id', lower(hex(randomblob(8)))),
    ('created_at_us', CAST(unixepoch() * 1000000 AS TEXT));

-- Closed lists. Numbers never change their meaning: new entries are appended by a later migration.

CREATE TABLE paths (path INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO paths (path, name) VALUES
    (0, '/v1/chat/completions'), (1, '/v1/completions'), (2, '/v1/embeddings'), (3, '/v1/responses'),
    (4, '/v1/messages'), (5, '/generate'), (6, 'other');

CREATE TABLE refusals (refusal INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO refusals (refusal, name) VALUES
    (0, 'malformed-body'), (1, 'body-too-large'), (2, 'overloaded'), (3, 'unknown-model'), (4, 'no-replica'),
    (5, 'draining'), (6, 'client-gone');

CREATE TABLE errors (error INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO errors (error, name) VALUES
    (0, 'refused'), (1, 'connect'), (2, 'upstream-closed'), (3, 'first-byte-timeout'), (4, 'idle-timeout'),
    (5, 'upstream-aborted'), (6, 'upstream-protocol'), (7, 'upstream-status'), (8, 'client-error'),
    (9, 'upstream-error-event'), (10, 'client-gone'), (11, 'lost-hedge'), (12, 'shutdown');

CREATE TABLE rtt_sources (rtt_source INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO rtt_sources (rtt_source, name) VALUES (0, 'unknown'), (1, 'probe'), (2, 'kernel');

CREATE TABLE connections (connection INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO connections (connection, name) VALUES (0, 'fresh'), (1, 'warm');

CREATE TABLE event_kinds (kind INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO event_kinds (kind, name) VALUES
    (0, 'start'), (1, 'drain'), (2, 'stop'), (3, 'replica-up'), (4, 'replica-down'), (5, 'replica-restarted'),
    (6, 'config-change'), (7, 'missing-signal');

CREATE TABLE rate_kinds (kind INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO rate_kinds (kind, name) VALUES (0, 'prefill'), (1, 'queue'), (2, 'decode'), (3, 'intercept');

-- Names that rows refer to by number.

CREATE TABLE configs (
    config_id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL
) STRICT;

CREATE TABLE replicas (
    replica_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    region TEXT NOT NULL,
    engine TEXT NOT NULL,
    url TEXT
) STRICT;

CREATE TABLE models (model_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE constraints (constraint_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE policies (
    policy_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (name, sha256)
) STRICT;

CREATE TABLE terms (
    policy_id INTEGER NOT NULL,
    slot INTEGER NOT NULL CHECK (slot >= 1),
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    unit TEXT NOT NULL,
    plugin_sha256 TEXT,
    PRIMARY KEY (policy_id, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run_id INTEGER PRIMARY KEY,
    started_at_us INTEGER NOT NULL,
    ended_at_us INTEGER,
    version TEXT NOT NULL,
    config_id INTEGER NOT NULL,
    policy_id INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    router_id TEXT NOT NULL,
    pid INTEGER NOT NULL
) STRICT;

-- One request: decided, tried, ended.

CREATE TABLE decisions (
    decision_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL,
    received_at_us INTEGER NOT NULL,
    path INTEGER NOT NULL,
    model_id INTEGER,
    session_hash INTEGER NOT NULL,
    policy_id INTEGER NOT NULL,
    generation_id INTEGER NOT NULL,
    arm INTEGER CHECK (arm IN (0, 1)),
    block INTEGER,
    counted INTEGER CHECK (counted IN (0, 1)),
    seed INTEGER NOT NULL,
    replica_id INTEGER,
    refusal INTEGER,
    propensity REAL NOT NULL,
    ties INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    parent_decision_id INTEGER,
    shared_tokens INTEGER NOT NULL,
    body_bytes INTEGER NOT NULL,
    decide_us INTEGER NOT NULL
) STRICT;

CREATE TABLE candidates (
    decision_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    replica_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    excluded_by INTEGER,
    cost_milli INTEGER NOT NULL,
    rtt_us INTEGER,
    rtt_source INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    queued_tokens INTEGER NOT NULL,
    queued_uncached_tokens INTEGER NOT NULL,
    inflight INTEGER NOT NULL,
    report_age_ms INTEGER,
    s1_milli INTEGER, s2_milli INTEGER, s3_milli INTEGER, s4_milli INTEGER,
    s5_milli INTEGER, s6_milli INTEGER, s7_milli INTEGER, s8_milli INTEGER,
    c1_milli INTEGER, c2_milli INTEGER, c3_milli INTEGER, c4_milli INTEGER,
    c5_milli INTEGER, c6_milli INTEGER, c7_milli INTEGER, c8_milli INTEGER,
    PRIMARY KEY (decision_id, attempt, replica_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE candidate_terms (
    decision_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    replica_id INTEGER NOT NULL,
    slot INTEGER NOT NULL CHECK (slot >= 9),
    signal_milli INTEGER NOT NULL,
    cost_milli INTEGER NOT NULL,
    PRIMARY KEY (decision_id, attempt, replica_id, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    decision_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    replica_id INTEGER NOT NULL,
    connection INTEGER,
    connect_us INTEGER,
    sent_us INTEGER,
    first_byte_us INTEGER,
    ended_us INTEGER NOT NULL,
    status INTEGER,
    error INTEGER,
    PRIMARY KEY (decision_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE outcomes (
    decision_id INTEGER PRIMARY KEY,
    status INTEGER,
    error INTEGER,
    ttft_us INTEGER,
    first_byte_us INTEGER,
    e2e_us INTEGER NOT NULL,
    itl_mean_us INTEGER,
    itl_p99_us INTEGER,
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    completion_tokens INTEGER,
    predicted_ttft_us INTEGER,
    predicted_cached_tokens INTEGER
) STRICT;

CREATE TABLE shadows (
    decision_id INTEGER NOT NULL,
    policy_id INTEGER NOT NULL,
    replica_id INTEGER NOT NULL,
    cost_milli INTEGER NOT NULL,
    PRIMARY KEY (decision_id, policy_id)
) STRICT, WITHOUT ROWID;

-- Observations of the replicas, and events of the router.

CREATE TABLE probes (
    replica_id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    rtt_us INTEGER,
    lost INTEGER NOT NULL CHECK (lost IN (0, 1)),
    PRIMARY KEY (replica_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE scrapes (
    replica_id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    ok INTEGER NOT NULL CHECK (ok IN (0, 1)),
    running INTEGER,
    waiting INTEGER,
    kv_used_tokens INTEGER,
    kv_used_milli INTEGER,
    throughput_milli INTEGER,
    PRIMARY KEY (replica_id, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    event_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    replica_id INTEGER,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX events_at ON events (at_us);

CREATE TABLE gaps (
    gap_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL,
    table_name TEXT NOT NULL,
    from_us INTEGER NOT NULL,
    to_us INTEGER NOT NULL,
    rows INTEGER NOT NULL CHECK (rows > 0)
) STRICT;

CREATE TABLE alarms (
    alarm_id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    from_us INTEGER NOT NULL,
    to_us INTEGER,
    value REAL
) STRICT;

-- Results of the tuners.

CREATE TABLE generations (
    policy_id INTEGER NOT NULL,
    generation_id INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    parent_id INTEGER,
    started_at_us INTEGER NOT NULL,
    ended_at_us INTEGER,
    optimizer TEXT NOT NULL,
    sigma REAL,
    state TEXT,
    verdict TEXT CHECK (verdict IN ('accepted', 'rejected', 'cut')),
    reason TEXT,
    PRIMARY KEY (policy_id, generation_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE generation_scores (
    policy_id INTEGER NOT NULL,
    generation_id INTEGER NOT NULL,
    arm INTEGER NOT NULL CHECK (arm IN (0, 1)),
    statistic TEXT NOT NULL,
    value REAL NOT NULL,
    low REAL,
    high REAL,
    samples INTEGER NOT NULL,
    PRIMARY KEY (policy_id, generation_id, arm, statistic)
) STRICT, WITHOUT ROWID;

CREATE TABLE weights (
    run_id INTEGER NOT NULL,
    policy_id INTEGER NOT NULL,
    generation_id INTEGER NOT NULL,
    slot INTEGER NOT NULL CHECK (slot >= 1),
    from_us INTEGER NOT NULL,
    to_us INTEGER,
    value REAL NOT NULL,
    PRIMARY KEY (run_id, policy_id, generation_id, slot, from_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE rates (
    replica_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    value REAL NOT NULL,
    low REAL NOT NULL,
    high REAL NOT NULL,
    samples INTEGER NOT NULL,
    PRIMARY KEY (replica_id, kind, at_us)
) STRICT, WITHOUT ROWID;

CREATE TABLE index_snapshots (
    replica_id INTEGER NOT NULL,
    taken_at_us INTEGER NOT NULL,
    engine_epoch INTEGER,
    blocks BLOB NOT NULL,
    PRIMARY KEY (replica_id, taken_at_us)
) STRICT;

-- The interface.

CREATE VIEW v_runs AS
SELECT
    r.run_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.started_at_us / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.ended_at_us / 1e6, 'unixepoch') AS ended_at,
    r.version,
    p.name AS policy,
    r.seed,
    r.router_id,
    r.pid,
    c.sha256 AS config_sha256
FROM runs r
LEFT JOIN configs c ON c.config_id = r.config_id
LEFT JOIN policies p ON p.policy_id = r.policy_id;

CREATE VIEW v_requests AS
SELECT
    d.decision_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.received_at_us / 1e6, 'unixepoch') AS at,
    d.received_at_us AS at_us,
    d.run_id,
    a.name AS path,
    m.name AS model,
    d.session_hash,
    r.name AS replica,
    r.region,
    p.name AS policy,
    d.generation_id,
    d.arm,
    f.name AS refusal,
    o.ttft_us / 1e3 AS ttft_ms,
    o.first_byte_us / 1e3 AS first_byte_ms,
    o.e2e_us / 1e3 AS e2e_ms,
    o.itl_mean_us / 1e3 AS itl_mean_ms,
    o.itl_p99_us / 1e3 AS itl_p99_ms,
    o.status,
    e.name AS error,
    coalesce(o.prompt_tokens, d.prompt_tokens) AS prompt_tokens,
    d.prompt_tokens AS estimated_prompt_tokens,
    o.cached_tokens,
    o.predicted_cached_tokens,
    o.predicted_ttft_us / 1e3 AS predicted_ttft_ms,
    o.completion_tokens,
    d.parent_decision_id,
    d.shared_tokens,
    d.body_bytes,
    d.propensity,
    d.ties,
    d.seed,
    d.decide_us / 1e3 AS decide_ms,
    (
        SELECT s.name
        FROM attempts t
        JOIN replicas s ON s.replica_id = t.replica_id
        WHERE t.decision_id = d.decision_id
        ORDER BY t.error IS NOT NULL, t.attempt DESC
        LIMIT 1
    ) AS served_by
FROM decisions d
LEFT JOIN outcomes o ON o.decision_id = d.decision_id
LEFT JOIN paths a ON a.path = d.path
LEFT JOIN models m ON m.model_id = d.model_id
LEFT JOIN replicas r ON r.replica_id = d.replica_id
LEFT JOIN policies p ON p.policy_id = d.policy_id
LEFT JOIN refusals f ON f.refusal = d.refusal
LEFT JOIN errors e ON e.error = o.error;

CREATE VIEW v_candidates AS
SELECT
    c.decision_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.received_at_us / 1e6, 'unixepoch') AS at,
    c.attempt,
    c.position,
    r.name AS replica,
    r.region,
    c.replica_id IS CASE
        WHEN c.attempt = 1 THEN d.replica_id
        ELSE (SELECT t.replica_id FROM attempts t WHERE t.decision_id = c.decision_id AND t.attempt = c.attempt)
    END AS chosen,
    x.name AS excluded_by,
    c.cost_milli / 1e3 AS cost,
    c.rtt_us / 1e3 AS rtt_ms,
    s.name AS rtt_source,
    c.cached_tokens,
    c.queued_tokens,
    c.queued_uncached_tokens,
    c.inflight,
    c.report_age_ms
FROM candidates c
LEFT JOIN decisions d ON d.decision_id = c.decision_id
LEFT JOIN replicas r ON r.replica_id = c.replica_id
LEFT JOIN constraints x ON x.constraint_id = c.excluded_by
LEFT JOIN rtt_sources s ON s.rtt_source = c.rtt_source;

CREATE VIEW v_terms AS
SELECT
    c.decision_id,
    c.attempt,
    r.name AS replica,
    t.slot,
    t.name AS term,
    t.kind,
    t.unit,
    CASE t.slot
        WHEN 1 THEN c.s1_milli WHEN 2 THEN c.s2_milli WHEN 3 THEN c.s3_milli WHEN 4 THEN c.s4_milli
        WHEN 5 THEN c.s5_milli WHEN 6 THEN c.s6_milli WHEN 7 THEN c.s7_milli WHEN 8 THEN c.s8_milli
        ELSE more.signal_milli
    END / 1e3 AS signal,
    (
        SELECT w.value
        FROM weights w
        WHERE w.run_id = d.run_id AND w.policy_id = d.policy_id AND w.generation_id = d.generation_id
            AND w.slot = t.slot
        LIMIT 1
    ) AS weight,
    CASE t.slot
        WHEN 1 THEN c.c1_milli WHEN 2 THEN c.c2_milli WHEN 3 THEN c.c3_milli WHEN 4 THEN c.c4_milli
        WHEN 5 THEN c.c5_milli WHEN 6 THEN c.c6_milli WHEN 7 THEN c.c7_milli WHEN 8 THEN c.c8_milli
        ELSE more.cost_milli
    END / 1e3 AS cost
FROM candidates c
JOIN decisions d ON d.decision_id = c.decision_id
JOIN terms t ON t.policy_id = d.policy_id
LEFT JOIN candidate_terms more ON more.decision_id = c.decision_id AND more.attempt = c.attempt
    AND more.replica_id = c.replica_id AND more.slot = t.slot
LEFT JOIN replicas r ON r.replica_id = c.replica_id;

CREATE VIEW v_attempts AS
SELECT
    t.decision_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.received_at_us / 1e6, 'unixepoch') AS at,
    t.attempt,
    r.name AS replica,
    n.name AS connection,
    t.connect_us / 1e3 AS connect_ms,
    t.sent_us / 1e3 AS sent_ms,
    t.first_byte_us / 1e3 AS first_byte_ms,
    t.ended_us / 1e3 AS ended_ms,
    t.status,
    e.name AS error
FROM attempts t
LEFT JOIN decisions d ON d.decision_id = t.decision_id
LEFT JOIN replicas r ON r.replica_id = t.replica_id
LEFT JOIN connections n ON n.connection = t.connection
LEFT JOIN errors e ON e.error = t.error;

CREATE VIEW v_shadows AS
SELECT
    s.decision_id,
    p.name AS policy,
    r.name AS replica,
    s.replica_id IS d.replica_id AS agrees,
    s.cost_milli / 1e3 AS cost
FROM shadows s
LEFT JOIN decisions d ON d.decision_id = s.decision_id
LEFT JOIN policies p ON p.policy_id = s.policy_id
LEFT JOIN replicas r ON r.replica_id = s.replica_id;

-- Quantiles are nearest rank, ceil(p × n), in whole numbers: (n × percent + 99) / 100.
CREATE VIEW v_replicas AS
WITH routed AS (
    SELECT d.replica_id, o.status, o.error, o.ttft_us, o.e2e_us, o.cached_tokens, o.predicted_cached_tokens
    FROM decisions d
    LEFT JOIN outcomes o ON o.decision_id = d.decision_id
    WHERE d.replica_id IS NOT NULL
),
sums AS (
    SELECT
        replica_id,
        count(*) AS requests,
        count(error) AS errors,
        sum(CASE WHEN cached_tokens IS NOT NULL THEN predicted_cached_tokens END) AS predicted_cached_tokens,
        sum(CASE WHEN predicted_cached_tokens IS NOT NULL THEN cached_tokens END) AS cached_tokens
    FROM routed
    GROUP BY replica_id
),
first_tokens AS (
    SELECT
        replica_id,
        ttft_us,
        row_number() OVER (PARTITION BY replica_id ORDER BY ttft_us) AS rank,
        count(*) OVER (PARTITION BY replica_id) AS samples
    FROM routed
    WHERE ttft_us IS NOT NULL
),
ttft AS (
    SELECT
        replica_id,
        max(CASE WHEN rank = (samples * 50 + 99) / 100 THEN ttft_us END) AS p50_us,
        max(CASE WHEN rank = (samples * 95 + 99) / 100 THEN ttft_us END) AS p95_us
    FROM first_tokens
    GROUP BY replica_id
),
last_bytes AS (
    SELECT
        replica_id,
        e2e_us,
        row_number() OVER (PARTITION BY replica_id ORDER BY e2e_us) AS rank,
        count(*) OVER (PARTITION BY replica_id) AS samples
    FROM routed
    WHERE e2e_us IS NOT NULL
),
e2e AS (
    SELECT replica_id, max(CASE WHEN rank = (samples * 95 + 99) / 100 THEN e2e_us END) AS p95_us
    FROM last_bytes
    GROUP BY replica_id
)
SELECT
    r.name AS replica,
    r.region,
    coalesce(s.requests, 0) AS requests,
    coalesce(s.requests * 1.0 / (SELECT sum(requests) FROM sums), 0.0) AS share,
    coalesce(s.errors, 0) AS errors,
    t.p50_us / 1e3 AS ttft_p50_ms,
    t.p95_us / 1e3 AS ttft_p95_ms,
    e.p95_us / 1e3 AS e2e_p95_ms,
    s.cached_tokens,
    s.predicted_cached_tokens
FROM replicas r
LEFT JOIN sums s ON s.replica_id = r.replica_id
LEFT JOIN ttft t ON t.replica_id = r.replica_id
LEFT JOIN e2e e ON e.replica_id = r.replica_id;

CREATE VIEW v_probes AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', p.at_us / 1e6, 'unixepoch') AS at,
    p.at_us,
    r.name AS replica,
    p.rtt_us / 1e3 AS rtt_ms,
    p.lost
FROM probes p
LEFT JOIN replicas r ON r.replica_id = p.replica_id;

CREATE VIEW v_scrapes AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', s.at_us / 1e6, 'unixepoch') AS at,
    s.at_us,
    r.name AS replica,
    s.ok,
    s.running,
    s.waiting,
    s.kv_used_tokens,
    s.kv_used_milli / 1e3 AS kv_used_share,
    s.throughput_milli / 1e3 AS tokens_per_second
FROM scrapes s
LEFT JOIN replicas r ON r.replica_id = s.replica_id;

CREATE VIEW v_events AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', v.at_us / 1e6, 'unixepoch') AS at,
    v.at_us,
    v.run_id,
    k.name AS kind,
    r.name AS replica,
    v.text
FROM events v
LEFT JOIN event_kinds k ON k.kind = v.kind
LEFT JOIN replicas r ON r.replica_id = v.replica_id;

CREATE VIEW v_gaps AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', from_us / 1e6, 'unixepoch') AS from_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', to_us / 1e6, 'unixepoch') AS to_at,
    run_id,
    table_name,
    from_us,
    to_us,
    rows
FROM gaps;

CREATE VIEW v_weights AS
SELECT
    w.run_id,
    p.name AS policy,
    w.generation_id,
    t.name AS term,
    t.unit,
    strftime('%Y-%m-%dT%H:%M:%fZ', w.from_us / 1e6, 'unixepoch') AS from_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', w.to_us / 1e6, 'unixepoch') AS to_at,
    w.value
FROM weights w
LEFT JOIN policies p ON p.policy_id = w.policy_id
LEFT JOIN terms t ON t.policy_id = w.policy_id AND t.slot = w.slot;

CREATE VIEW v_rates AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', a.at_us / 1e6, 'unixepoch') AS at,
    a.at_us,
    r.name AS replica,
    k.name AS kind,
    a.value,
    a.low,
    a.high,
    a.samples
FROM rates a
LEFT JOIN rate_kinds k ON k.kind = a.kind
LEFT JOIN replicas r ON r.replica_id = a.replica_id;
