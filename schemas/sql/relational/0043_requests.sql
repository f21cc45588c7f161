-- +goose Up
-- A case is of an incident, or of what a person, an allocation or a workflow asked for.
ALTER TABLE control_cases RENAME COLUMN incident TO reason; -- id of the incident, or of the request
-- What was asked for, from before control knows of it. The id is that of the action.
CREATE TABLE requests (
  id TEXT PRIMARY KEY,
  server TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  told_ns BIGINT NOT NULL, -- when it was last put on the bus; 0 before
  taken BOOLEAN NOT NULL, -- control has made an action of it
  doc TEXT NOT NULL
);
CREATE INDEX requests_created ON requests (created_ns, id);
CREATE INDEX requests_server ON requests (server, created_ns, id);
CREATE INDEX requests_untaken ON requests (told_ns) WHERE taken = FALSE;

-- +goose Down
DROP TABLE requests;
ALTER TABLE control_cases RENAME COLUMN reason TO incident;
