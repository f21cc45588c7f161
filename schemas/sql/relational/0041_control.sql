-- +goose Up
-- What people decided about an action, until control has taken it up: written
-- before the bus is told that it was read, so that a crash forgets no decision.
CREATE TABLE control_intents (
  action TEXT PRIMARY KEY REFERENCES control_actions (id),
  verb TEXT NOT NULL, -- approve, cancel, dry-run
  actor TEXT NOT NULL
);

-- The end of the audit's chain: one row, whose lock puts writers in a line.
CREATE TABLE control_audit_head (
  id BIGINT PRIMARY KEY CHECK (id = 1),
  seq BIGINT NOT NULL,
  hash TEXT NOT NULL
);
INSERT INTO control_audit_head (id, seq, hash)
SELECT 1, COALESCE(MAX(seq), 0), COALESCE((SELECT hash FROM control_audit ORDER BY seq DESC LIMIT 1), '') FROM control_audit;

-- +goose Down
DROP TABLE control_audit_head;
DROP TABLE control_intents;
