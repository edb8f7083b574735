-- The admission gate: the attempts that waited in the router before they were sent, for which replica, how long, and how
-- the wait ended.

INSERT INTO refusals (refusal, name) VALUES (7, 'queue-full');
INSERT INTO event_kinds (kind, name) VALUES (9, 'admission-resync');

CREATE TABLE admission_ends (ended INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO admission_ends (ended, name) VALUES (0, 'dispatched'), (1, 'client-gone'), (2, 'refused'), (3, 'shutdown');

CREATE TABLE admissions (
    decision_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    replica_id INTEGER NOT NULL,
    moves INTEGER NOT NULL,
    wait_us INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    PRIMARY KEY (decision_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_admissions AS
SELECT
    g.decision_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.received_at_us / 1e6, 'unixepoch') AS at,
    g.attempt,
    r.name AS replica,
    g.moves,
    g.wait_us / 1e3 AS wait_ms,
    e.name AS ended
FROM admissions g
LEFT JOIN decisions d ON d.decision_id = g.decision_id
LEFT JOIN replicas r ON r.replica_id = g.replica_id
LEFT JOIN admission_ends e ON e.ended = g.ended;
