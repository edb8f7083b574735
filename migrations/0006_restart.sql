-- What a restart goes on from: which life of its engine a snapshot of the index is of, and what was learned of each
-- replica. And what `errors` of a replica counts: its own failures on inference paths, not its clients' mistakes.

-- Prompt tokens that the engine had read by then.
ALTER TABLE index_snapshots ADD COLUMN engine_tokens REAL;

CREATE TABLE learned (
    replica_id INTEGER PRIMARY KEY,
    at_us INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;

CREATE VIEW v_index_snapshots AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', s.taken_at_us / 1e6, 'unixepoch') AS taken_at,
    s.taken_at_us,
    r.name AS replica,
    strftime('%Y-%m-%dT%H:%M:%fZ', s.engine_epoch / 1e3, 'unixepoch') AS engine_started_at,
    s.engine_tokens,
    length(s.blocks) AS bytes
FROM index_snapshots s
LEFT JOIN replicas r ON r.replica_id = s.replica_id;

DROP VIEW v_replicas;
CREATE VIEW v_replicas AS
WITH routed AS (
    SELECT
        d.replica_id,
        d.path <> (SELECT path FROM paths WHERE name = 'other') AND e.name IN (
            'connect', 'upstream-closed', 'first-byte-timeout', 'idle-timeout', 'upstream-aborted', 'upstream-protocol',
            'upstream-status', 'upstream-error-event'
        ) AS failed,
        o.ttft_us,
        o.e2e_us,
        o.cached_tokens,
        o.predicted_cached_tokens
    FROM decisions d
    LEFT JOIN outcomes o ON o.decision_id = d.decision_id
    LEFT JOIN errors e ON e.error = o.error
    WHERE d.replica_id IS NOT NULL
),
sums AS (
    SELECT
        replica_id,
        count(*) AS requests,
        sum(coalesce(failed, 0)) AS errors,
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
