-- What an operator looks for: reloads that were refused and replicas that are drained are events of a kind of their own;
-- the gaps between tokens of each request, counted by eight bounds; what the policies that watch would have been worth.

INSERT INTO event_kinds (kind, name) VALUES (10, 'config-refused'), (11, 'replica-draining');

-- Gaps up to 5, 10, 20, 40, 80, 160, 320 ms (each above the one before), and longer ones.
ALTER TABLE outcomes ADD COLUMN itl_1 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_2 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_3 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_4 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_5 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_6 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_7 INTEGER;
ALTER TABLE outcomes ADD COLUMN itl_8 INTEGER;

CREATE VIEW v_itl AS
SELECT
    o.decision_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.received_at_us / 1e6, 'unixepoch') AS at,
    r.name AS replica,
    p.name AS policy,
    o.itl_1 + o.itl_2 + o.itl_3 + o.itl_4 + o.itl_5 + o.itl_6 + o.itl_7 + o.itl_8 AS gaps,
    o.itl_1 AS to_5_ms,
    o.itl_2 AS to_10_ms,
    o.itl_3 AS to_20_ms,
    o.itl_4 AS to_40_ms,
    o.itl_5 AS to_80_ms,
    o.itl_6 AS to_160_ms,
    o.itl_7 AS to_320_ms,
    o.itl_8 AS beyond_320_ms
FROM outcomes o
LEFT JOIN decisions d ON d.decision_id = o.decision_id
LEFT JOIN replicas r ON r.replica_id = d.replica_id
LEFT JOIN policies p ON p.policy_id = d.policy_id
WHERE o.itl_1 IS NOT NULL;

-- Self-normalised inverse propensity scores: of the decisions that chance made (propensity below 1), those in which the
-- watching policy chose the same replica, each weighted by one over the chance that it had to be chosen. What served is told
-- of the same decisions, since those are not a fair sample of all.
CREATE VIEW v_shadow_scores AS
WITH seen AS (
    SELECT
        s.policy_id,
        d.policy_id AS served_policy_id,
        s.replica_id IS d.replica_id AS agrees,
        d.propensity > 0 AND d.propensity < 1 AS by_chance,
        CASE
            WHEN s.replica_id IS d.replica_id AND d.propensity > 0 AND d.propensity < 1 THEN 1.0 / d.propensity
            ELSE 0.0
        END AS weight,
        o.error IS NOT NULL AS failed,
        o.ttft_us / 1e3 AS ttft_ms,
        CASE WHEN o.error IS NULL THEN o.e2e_us / 1e3 END AS e2e_ms
    FROM shadows s
    JOIN decisions d ON d.decision_id = s.decision_id
    JOIN outcomes o ON o.decision_id = s.decision_id
    WHERE o.error IS NULL OR o.error NOT IN (SELECT error FROM errors WHERE name IN ('client-gone', 'client-error', 'shutdown', 'refused'))
)
SELECT
    p.name AS policy,
    q.name AS served_policy,
    count(*) AS decisions,
    avg(agrees) AS agreement,
    avg(by_chance) AS by_chance,
    CASE WHEN sum(weight) > 0 THEN sum(weight) * sum(weight) / sum(weight * weight) ELSE 0.0 END AS effective_samples,
    sum(weight) / nullif(sum(by_chance), 0) AS covered,
    avg(CASE WHEN by_chance THEN ttft_ms END) AS served_ttft_ms,
    sum(weight * ttft_ms) / nullif(sum(CASE WHEN ttft_ms IS NOT NULL THEN weight END), 0) AS shadow_ttft_ms,
    avg(CASE WHEN by_chance THEN e2e_ms END) AS served_e2e_ms,
    sum(weight * e2e_ms) / nullif(sum(CASE WHEN e2e_ms IS NOT NULL THEN weight END), 0) AS shadow_e2e_ms,
    avg(CASE WHEN by_chance THEN failed END) AS served_error_share,
    sum(weight * failed) / nullif(sum(weight), 0) AS shadow_error_share
FROM seen
LEFT JOIN policies p ON p.policy_id = seen.policy_id
LEFT JOIN policies q ON q.policy_id = seen.served_policy_id
GROUP BY seen.policy_id, seen.served_policy_id;
