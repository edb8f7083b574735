-- Plugins: what can happen to them.

INSERT INTO event_kinds (kind, name) VALUES (8, 'plugin-quarantined');
