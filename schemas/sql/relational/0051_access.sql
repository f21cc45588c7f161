-- +goose Up
-- Tokens have an end and a last use, and a session ends with the token that it
-- came from. Of sessions from before nobody knows which: those that bear the name
-- of a token end.
ALTER TABLE api_tokens ADD COLUMN expires_ns BIGINT NOT NULL DEFAULT 0; -- 0 is never
ALTER TABLE api_tokens ADD COLUMN used_ns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_sessions ADD COLUMN token TEXT NOT NULL DEFAULT ''; -- hash of the token
DELETE FROM api_sessions WHERE name IN (SELECT name FROM api_tokens);

-- +goose Down
ALTER TABLE api_sessions DROP COLUMN token;
ALTER TABLE api_tokens DROP COLUMN used_ns;
ALTER TABLE api_tokens DROP COLUMN expires_ns;
