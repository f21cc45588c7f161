-- +goose Up
-- What was done to one thing is looked up among very many rows.
CREATE INDEX control_audit_subject ON control_audit (subject, seq);

-- +goose Down
DROP INDEX control_audit_subject;
