-- +goose Up
-- With what a server asks what it is where its address does not say: one token each, as its hash.
CREATE TABLE metadata_tokens (
  server_id TEXT NOT NULL,
  hash TEXT NOT NULL, -- SHA-256, hex
  created_by TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT metadata_tokens_server_id PRIMARY KEY (server_id),
  CONSTRAINT metadata_tokens_server FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT metadata_tokens_hash UNIQUE (hash)
);

-- +goose Down
DROP TABLE metadata_tokens;
