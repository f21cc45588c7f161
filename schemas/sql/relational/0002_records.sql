-- +goose Up
-- The current state of alerts, incidents, predictions and actions, one document each.
CREATE TABLE records (
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  status TEXT NOT NULL,
  resource TEXT NOT NULL,
  server TEXT NOT NULL,
  incident TEXT NOT NULL,
  time_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  doc TEXT NOT NULL,
  PRIMARY KEY (kind, id)
);
CREATE INDEX records_time ON records (kind, time_ns, id);
CREATE INDEX records_status ON records (kind, status, time_ns, id);
CREATE INDEX records_server ON records (kind, server, time_ns, id);
CREATE INDEX records_incident ON records (kind, incident);

-- +goose Down
DROP TABLE records;
