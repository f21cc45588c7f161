-- +goose Up
-- What people said about the causes of incidents. Verdicts are only ever added; the
-- highest revision of an incident stands. said is a Cause, JSON.
CREATE TABLE incident_corrections (
  incident TEXT NOT NULL,
  revision BIGINT NOT NULL,
  time_ns BIGINT NOT NULL,
  author TEXT NOT NULL,
  verdict TEXT NOT NULL,
  resource TEXT NOT NULL,
  fault TEXT NOT NULL,
  note TEXT NOT NULL,
  said TEXT NOT NULL,
  PRIMARY KEY (incident, revision)
);
CREATE INDEX incident_corrections_time ON incident_corrections (time_ns, incident, revision);

-- When an incident turned to a root cause: how soon the right one was named. A row
-- is written only where the cause differs from that of the row before.
CREATE TABLE incident_causes (
  incident TEXT NOT NULL,
  revision BIGINT NOT NULL,
  at_ns BIGINT NOT NULL, -- event time of the decision
  resource TEXT NOT NULL,
  fault TEXT NOT NULL,
  PRIMARY KEY (incident, revision)
);

-- Parameters that were learned from this site, one document each. Version 0 is
-- nobody's: the numbers of the fault records as they are.
CREATE TABLE learned_parameters (
  version BIGINT NOT NULL PRIMARY KEY,
  time_ns BIGINT NOT NULL,
  author TEXT NOT NULL,
  doc TEXT NOT NULL
);
CREATE TABLE learned_active (
  id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
  version BIGINT NOT NULL
);
INSERT INTO learned_active (id, version) VALUES (1, 0);

-- +goose Down
DROP TABLE learned_active;
DROP TABLE learned_parameters;
DROP TABLE incident_causes;
DROP TABLE incident_corrections;
