-- Tuners: which blocks of decisions a generation is of, and views of what was tried and why it was kept or not.

ALTER TABLE generations ADD COLUMN first_block INTEGER;
-- The one after the last.
ALTER TABLE generations ADD COLUMN end_block INTEGER;

CREATE VIEW v_generations AS
SELECT
    g.generation_id,
    p.name AS policy,
    g.run_id,
    g.parent_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', g.started_at_us / 1e6, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', g.ended_at_us / 1e6, 'unixepoch') AS ended_at,
    g.optimizer,
    g.sigma,
    g.verdict,
    g.reason,
    g.first_block,
    g.end_block,
    (
        SELECT s.value FROM generation_scores s
        WHERE s.policy_id = g.policy_id AND s.generation_id = g.generation_id AND s.statistic = 'score_difference'
    ) AS score_difference
FROM generations g
LEFT JOIN policies p ON p.policy_id = g.policy_id;

CREATE VIEW v_scores AS
SELECT
    s.generation_id,
    p.name AS policy,
    CASE s.arm WHEN 0 THEN 'incumbent' ELSE 'candidate' END AS arm,
    s.statistic,
    s.value,
    s.low,
    s.high,
    s.samples
FROM generation_scores s
LEFT JOIN policies p ON p.policy_id = s.policy_id;

CREATE VIEW v_alarms AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', a.from_us / 1e6, 'unixepoch') AS from_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', a.to_us / 1e6, 'unixepoch') AS to_at,
    a.run_id,
    a.kind,
    a.value
FROM alarms a;
