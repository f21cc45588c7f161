-- +goose Up
-- Who people are, and which teams they are of. A constraint is named after its table and the field that it keeps, so
-- that a refusal can be told by the name that callers know. Names and addresses are the same in either case.
CREATE TABLE users (
  id TEXT NOT NULL,
  username TEXT NOT NULL,
  email TEXT NOT NULL,
  role TEXT NOT NULL,
  status TEXT NOT NULL,
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT users_id PRIMARY KEY (id),
  CONSTRAINT users_role CHECK (role IN ('viewer', 'operator', 'engineer', 'admin')),
  CONSTRAINT users_status CHECK (status IN ('active', 'inactive')),
  CONSTRAINT users_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX users_username ON users (lower(username));
CREATE UNIQUE INDEX users_email ON users (lower(email));
CREATE TABLE teams (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT teams_id PRIMARY KEY (id),
  CONSTRAINT teams_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX teams_name ON teams (lower(name));
CREATE TABLE team_members (
  team_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  CONSTRAINT team_members_id PRIMARY KEY (team_id, user_id),
  CONSTRAINT team_members_team_id FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE,
  CONSTRAINT team_members_user_id FOREIGN KEY (user_id) REFERENCES users (id)
);
CREATE INDEX team_members_of ON team_members (user_id);
-- A token is somebody's, or nobody's: a script's. Sessions follow the token that they came from.
ALTER TABLE api_tokens ADD COLUMN user_id TEXT REFERENCES users (id);
CREATE INDEX api_tokens_of ON api_tokens (user_id);

-- +goose Down
DROP INDEX api_tokens_of;
ALTER TABLE api_tokens DROP COLUMN user_id;
DROP TABLE team_members;
DROP TABLE teams;
DROP TABLE users;
