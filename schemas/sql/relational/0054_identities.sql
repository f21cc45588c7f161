-- +goose Up
-- Who a login service says that a user is: its issuer, and its own name for them, which it never gives to another. Groups
-- are taken from the newest statement alone, so that an old token gives nothing back that was taken away since.
CREATE TABLE user_identities (
  issuer TEXT NOT NULL,
  subject TEXT NOT NULL,
  user_id TEXT NOT NULL,
  stated_ns BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT user_identities_subject PRIMARY KEY (issuer, subject),
  CONSTRAINT user_identities_user_id FOREIGN KEY (user_id) REFERENCES users (id)
);
CREATE INDEX user_identities_of ON user_identities (user_id);
-- A session of a user follows them, as a token of theirs does.
ALTER TABLE api_sessions ADD COLUMN user_id TEXT REFERENCES users (id);
CREATE INDEX api_sessions_of ON api_sessions (user_id);

-- +goose Down
DROP INDEX api_sessions_of;
ALTER TABLE api_sessions DROP COLUMN user_id;
DROP TABLE user_identities;
