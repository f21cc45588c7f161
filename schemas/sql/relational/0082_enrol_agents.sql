-- +goose Up
-- What was read last of each node agent: its version, or why its description was refused.
CREATE TABLE enrol_agents (
  subject TEXT NOT NULL PRIMARY KEY, -- the key of a machine that dials in, or the server
  server TEXT NOT NULL, -- where it stood, "" nowhere
  machine TEXT NOT NULL, -- the key of a machine that dials in, or ""
  token TEXT NOT NULL,
  address TEXT NOT NULL, -- where it was read
  version TEXT NOT NULL,
  refused TEXT NOT NULL, -- why, "" is a description that was taken
  refused_ns BIGINT NOT NULL, -- since when it has been refused for that
  read_ns BIGINT NOT NULL
);
CREATE INDEX enrol_agents_refused ON enrol_agents (refused_ns, subject);

-- +goose Down
DROP TABLE enrol_agents;
