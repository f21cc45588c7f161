-- +goose Up
-- What somebody may in one pool, beside what their role lets them everywhere: a user, the members of a team, or a token that
-- is nobody's. It ends with each of these, and a pool that is spoken of stays.
CREATE TABLE grants (
  id TEXT NOT NULL,
  user_id TEXT,
  team_id TEXT,
  token TEXT,
  pool_id TEXT NOT NULL,
  role TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT grants_id PRIMARY KEY (id),
  CONSTRAINT grants_user FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
  CONSTRAINT grants_team FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE,
  CONSTRAINT grants_token FOREIGN KEY (token) REFERENCES api_tokens (name) ON DELETE CASCADE,
  CONSTRAINT grants_pool FOREIGN KEY (pool_id) REFERENCES pools (id),
  CONSTRAINT grants_role CHECK (role IN ('operator', 'engineer', 'admin')),
  CONSTRAINT grants_holder CHECK ((CASE WHEN user_id IS NULL THEN 0 ELSE 1 END) + (CASE WHEN team_id IS NULL THEN 0 ELSE 1 END) + (CASE WHEN token IS NULL THEN 0 ELSE 1 END) = 1)
);
-- One of each holder and pool: the role is changed by another grant in its place.
CREATE UNIQUE INDEX grants_of_user ON grants (user_id, pool_id);
CREATE UNIQUE INDEX grants_of_team ON grants (team_id, pool_id);
CREATE UNIQUE INDEX grants_of_token ON grants (token, pool_id);
CREATE INDEX grants_of_pool ON grants (pool_id);

-- +goose Down
DROP TABLE grants;
