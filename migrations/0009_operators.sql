-- What an operator looks for: a reload that was refused is an event of a kind of its own.

INSERT INTO event_kinds (kind, name) VALUES (10, 'config-refused');
