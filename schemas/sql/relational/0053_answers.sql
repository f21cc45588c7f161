-- +goose Up
-- Answers to requests that carry an Idempotency-Key, so that one that is sent again is answered and not done again.
CREATE TABLE api_answers (
  caller TEXT NOT NULL,
  request_key TEXT NOT NULL,
  request TEXT NOT NULL, -- SHA-256 of what was asked
  began_ns BIGINT NOT NULL,
  ends_ns BIGINT NOT NULL, -- when it is forgotten
  status INTEGER NOT NULL, -- 0 while it is at work
  answer TEXT NOT NULL,
  PRIMARY KEY (caller, request_key)
);
CREATE INDEX api_answers_ends ON api_answers (ends_ns);

-- +goose Down
DROP TABLE api_answers;
