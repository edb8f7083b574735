-- For whoever measures: the network by replica, who got how much of the traffic minute by minute, and how often a decision
-- was not what its policy wanted. Views only.

CREATE VIEW v_rtt AS
WITH ranked AS (
    SELECT
        replica_id,
        rtt_us,
        row_number() OVER (PARTITION BY replica_id ORDER BY rtt_us) AS rank,
        count(*) OVER (PARTITION BY replica_id) AS samples,
        avg(rtt_us) OVER (PARTITION BY replica_id) AS mean_us
    FROM probes
    WHERE rtt_us IS NOT NULL
),
answered AS (
    SELECT
        replica_id,
        min(rtt_us) AS min_us,
        max(rtt_us) AS max_us,
        avg(rtt_us) AS mean_us,
        CASE WHEN count(*) > 1 THEN sqrt(sum((rtt_us - mean_us) * (rtt_us - mean_us)) / (count(*) - 1)) END AS sd_us,
        max(CASE WHEN rank = (samples * 50 + 99) / 100 THEN rtt_us END) AS p50_us,
        max(CASE WHEN rank = (samples * 95 + 99) / 100 THEN rtt_us END) AS p95_us,
        max(CASE WHEN rank = (samples * 99 + 99) / 100 THEN rtt_us END) AS p99_us
    FROM ranked
    GROUP BY replica_id
),
sent AS (
    SELECT replica_id, count(*) AS probes, sum(lost) AS lost, min(at_us) AS from_us, max(at_us) AS to_us
    FROM probes
    GROUP BY replica_id
)
SELECT
    r.name AS replica,
    r.region,
    strftime('%Y-%m-%dT%H:%M:%fZ', s.from_us / 1e6, 'unixepoch') AS from_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', s.to_us / 1e6, 'unixepoch') AS to_at,
    s.probes,
    s.lost,
    a.min_us / 1e3 AS min_ms,
    a.p50_us / 1e3 AS p50_ms,
    a.p95_us / 1e3 AS p95_ms,
    a.p99_us / 1e3 AS p99_ms,
    a.max_us / 1e3 AS max_ms,
    a.mean_us / 1e3 AS mean_ms,
    a.sd_us / 1e3 AS sd_ms
FROM sent s
LEFT JOIN answered a ON a.replica_id = s.replica_id
LEFT JOIN replicas r ON r.replica_id = s.replica_id;

CREATE VIEW v_shares AS
WITH routed AS (
    SELECT
        received_at_us / 60000000 AS minute,
        replica_id,
        count(*) AS requests,
        sum(prompt_tokens) AS prompt_tokens
    FROM decisions
    WHERE replica_id IS NOT NULL
    GROUP BY minute, replica_id
)
SELECT
    strftime('%Y-%m-%dT%H:%M:00Z', m.minute * 60, 'unixepoch') AS minute,
    m.minute * 60000000 AS minute_at_us,
    r.name AS replica,
    m.requests,
    m.requests * 1.0 / sum(m.requests) OVER (PARTITION BY m.minute) AS share,
    m.prompt_tokens,
    m.prompt_tokens * 1.0 / nullif(sum(m.prompt_tokens) OVER (PARTITION BY m.minute), 0) AS token_share
FROM routed m
LEFT JOIN replicas r ON r.replica_id = m.replica_id;

CREATE VIEW v_concentration AS
SELECT
    minute,
    minute_at_us,
    sum(requests) AS requests,
    count(*) AS replicas,
    max(CASE WHEN place = 1 THEN replica END) AS busiest,
    max(share) AS busiest_share,
    max(token_share) AS busiest_token_share,
    sum(share * share) AS hhi
FROM (
    SELECT *, row_number() OVER (PARTITION BY minute_at_us ORDER BY share DESC, replica) AS place FROM v_shares
)
GROUP BY minute, minute_at_us;

CREATE VIEW v_fallbacks AS
WITH told AS (
    SELECT
        d.received_at_us / 60000000 AS minute,
        d.policy_id,
        d.refusal IS NOT NULL AS refused,
        EXISTS (
            SELECT 1 FROM candidates c JOIN constraints k ON k.constraint_id = c.excluded_by
            WHERE c.decision_id = d.decision_id AND k.name LIKE 'relaxed:%'
        ) AS relaxed,
        EXISTS (SELECT 1 FROM attempts a WHERE a.decision_id = d.decision_id AND a.attempt > 1) AS tried_again
    FROM decisions d
)
SELECT
    strftime('%Y-%m-%dT%H:%M:00Z', t.minute * 60, 'unixepoch') AS minute,
    t.minute * 60000000 AS minute_at_us,
    p.name AS policy,
    count(*) AS decisions,
    sum(t.refused) AS refused,
    sum(t.relaxed) AS relaxed,
    sum(t.tried_again) AS tried_again,
    avg(t.refused OR t.relaxed OR t.tried_again) AS fallback_share
FROM told t
LEFT JOIN policies p ON p.policy_id = t.policy_id
GROUP BY t.minute, t.policy_id, p.name;
