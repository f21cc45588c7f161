-- +goose Up
-- A case is one ladder climbed for one incident on one server (or other resource).
CREATE TABLE control_cases (
  id TEXT PRIMARY KEY,
  incident TEXT NOT NULL,
  subject TEXT NOT NULL,
  target TEXT NOT NULL, -- the root cause; a revised cause is another case
  state TEXT NOT NULL,
  updated_ns BIGINT NOT NULL,
  doc TEXT NOT NULL,
  UNIQUE (incident, target)
);
-- One ladder at a time on a server, whoever asks.
CREATE UNIQUE INDEX control_cases_open ON control_cases (subject) WHERE state = 'open';

CREATE TABLE control_actions (
  id TEXT PRIMARY KEY,
  case_id TEXT NOT NULL REFERENCES control_cases (id),
  rung BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  state TEXT NOT NULL,
  destructive BOOLEAN NOT NULL,
  intent_ns BIGINT NOT NULL, -- when the side effect was decided; 0 before
  published BOOLEAN NOT NULL,
  doc TEXT NOT NULL,
  UNIQUE (case_id, rung, attempt)
);

CREATE TABLE control_leases (
  subject TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  token BIGINT NOT NULL, -- grows with each new holder: the fencing token
  expires_ns BIGINT NOT NULL
);

-- Append-only; each hash covers the row and the hash before it.
CREATE TABLE control_audit (
  seq BIGINT PRIMARY KEY,
  time_ns BIGINT NOT NULL,
  actor TEXT NOT NULL,
  verb TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL,
  prev TEXT NOT NULL,
  hash TEXT NOT NULL
);

-- +goose Down
DROP TABLE control_audit;
DROP TABLE control_leases;
DROP TABLE control_actions;
DROP TABLE control_cases;
