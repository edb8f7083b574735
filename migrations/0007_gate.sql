-- The decode gate: who waited at the router before being sent on, for whom, how long, and how that ended.

INSERT INTO refusals (refusal, name) VALUES (7, 'gate-full');
INSERT INTO event_kinds (kind, name) VALUES (9, 'gate-resync');

CREATE TABLE hold_ends (ended INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO hold_ends (ended, name) VALUES (0, 'dispatched'), (1, 'client-gone'), (2, 'refused'), (3, 'shutdown');

CREATE TABLE holds (
    decision_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    replica_id INTEGER NOT NULL,
    moves INTEGER NOT NULL,
    held_us INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    PRIMARY KEY (decision_id, attempt)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_holds AS
SELECT
    h.decision_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', d.received_at_us / 1e6, 'unixepoch') AS at,
    h.attempt,
    r.name AS replica,
    h.moves,
    h.held_us / 1e3 AS held_ms,
    e.name AS ended
FROM holds h
LEFT JOIN decisions d ON d.decision_id = h.decision_id
LEFT JOIN replicas r ON r.replica_id = h.replica_id
LEFT JOIN hold_ends e ON e.ended = h.ended;
