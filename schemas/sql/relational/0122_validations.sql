-- +goose Up
-- What was found of servers when they were looked at: one row each time, which never changes.
CREATE TABLE validations (
  id TEXT NOT NULL, -- of the action that looked
  server_id TEXT NOT NULL,
  number BIGINT NOT NULL, -- of the server, from 1
  verdict TEXT NOT NULL,
  doc TEXT NOT NULL, -- schemas.Validation as JSON
  created_ns BIGINT NOT NULL,
  CONSTRAINT validations_id PRIMARY KEY (id),
  CONSTRAINT validations_number UNIQUE (server_id, number),
  CONSTRAINT validations_server_id FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT validations_verdict CHECK (verdict IN ('passed', 'warned', 'failed', 'not_seen')),
  CONSTRAINT validations_doc CHECK (length(doc) <= 1048576)
);

-- +goose Down
DROP TABLE validations;
