-- +goose Up
-- Tokens with which node agents join, and the machines that have. Secrets are kept as
-- SHA-256 of 256 random bits; a revoked or used token stays as long as a machine is bound to it.
CREATE TABLE join_tokens (
  name TEXT NOT NULL PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  server TEXT NOT NULL, -- whom it is for alone, "" anybody
  uses BIGINT NOT NULL, -- machines that may join with it
  used BIGINT NOT NULL DEFAULT 0, -- by machines that have joined
  accept BIGINT NOT NULL, -- 1: what its machines propose and contradicts nothing is accepted at once
  created_ns BIGINT NOT NULL,
  created_by TEXT NOT NULL,
  expires_ns BIGINT NOT NULL, -- of joining; who has joined stays
  revoked_ns BIGINT NOT NULL DEFAULT 0,
  revoked_by TEXT NOT NULL DEFAULT '',
  refused BIGINT NOT NULL DEFAULT 0, -- how often it was shown in vain
  refused_ns BIGINT NOT NULL DEFAULT 0,
  refused_from TEXT NOT NULL DEFAULT ''
);
CREATE TABLE join_machines (
  key TEXT NOT NULL PRIMARY KEY, -- SHA-256 of the public key of its certificate
  token TEXT NOT NULL REFERENCES join_tokens (name),
  server TEXT NOT NULL, -- which it is by the word of a person, "" by its serial or UUID
  serial TEXT NOT NULL,
  uuid TEXT NOT NULL,
  hostname TEXT NOT NULL,
  address TEXT NOT NULL,
  doubt TEXT NOT NULL DEFAULT '', -- what it says now otherwise than when it joined
  joined_ns BIGINT NOT NULL,
  seen_ns BIGINT NOT NULL,
  revoked_ns BIGINT NOT NULL DEFAULT 0,
  revoked_by TEXT NOT NULL DEFAULT ''
);
CREATE INDEX join_machines_token ON join_machines (token);
-- One row: counts the changes, so that other processes see them.
CREATE TABLE join_version (
  id BIGINT NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL
);
INSERT INTO join_version (id, version) VALUES (1, 0);

-- +goose Down
DROP TABLE join_version;
DROP TABLE join_machines;
DROP TABLE join_tokens;
