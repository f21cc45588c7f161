-- +goose Up
-- Who may ask the API. Secrets are kept as SHA-256 of 256 random bits.
CREATE TABLE api_tokens (
  name TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  created_ns BIGINT NOT NULL
);
CREATE TABLE api_sessions (
  hash TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  expires_ns BIGINT NOT NULL
);
CREATE INDEX api_sessions_expires ON api_sessions (expires_ns);

-- +goose Down
DROP TABLE api_sessions;
DROP TABLE api_tokens;
