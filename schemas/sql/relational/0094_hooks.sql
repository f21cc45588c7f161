-- +goose Up
CREATE TABLE webhooks (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  url TEXT NOT NULL,
  topics TEXT NOT NULL, -- JSON: patterns of types; none is all
  secret TEXT NOT NULL, -- signs what is sent; is given out by no query of lists
  secret_ns BIGINT NOT NULL, -- since when it is this one
  active BOOLEAN NOT NULL,
  last_ns BIGINT NOT NULL DEFAULT 0, -- the last attempt
  last_status BIGINT NOT NULL DEFAULT 0, -- HTTP; 0 is no answer
  last_error TEXT NOT NULL DEFAULT '', -- '' is that it was taken
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT webhooks_id PRIMARY KEY (id),
  CONSTRAINT webhooks_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX webhooks_name ON webhooks (lower(name));

-- What people and their programs are told. A row is written in the transaction of what it tells.
CREATE TABLE notices (
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  subject TEXT NOT NULL,
  time_ns BIGINT NOT NULL,
  data TEXT NOT NULL, -- JSON
  user_id TEXT, -- whom it is for; NULL is nobody in particular
  team_id TEXT,
  created_ns BIGINT NOT NULL,
  CONSTRAINT notices_id PRIMARY KEY (id),
  CONSTRAINT notices_user_id FOREIGN KEY (user_id) REFERENCES users (id),
  CONSTRAINT notices_team_id FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE SET NULL
);
CREATE INDEX notices_created ON notices (created_ns, id);
CREATE INDEX notices_team ON notices (team_id) WHERE team_id IS NOT NULL;

-- A webhook may go while a notice is written: what is left for it is swept, and no transaction fails.
CREATE TABLE deliveries (
  webhook_id TEXT NOT NULL,
  notice_id TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts BIGINT NOT NULL DEFAULT 0,
  next_ns BIGINT NOT NULL, -- when it is to be tried; while somebody tries it, when they are taken for dead
  last_status BIGINT NOT NULL DEFAULT 0,
  last_error TEXT NOT NULL DEFAULT '',
  created_ns BIGINT NOT NULL,
  done_ns BIGINT NOT NULL DEFAULT 0, -- when it was delivered or given up
  CONSTRAINT deliveries_id PRIMARY KEY (webhook_id, notice_id),
  CONSTRAINT deliveries_notice_id FOREIGN KEY (notice_id) REFERENCES notices (id) ON DELETE CASCADE,
  CONSTRAINT deliveries_state CHECK (state IN ('pending', 'delivered', 'dead'))
);
CREATE INDEX deliveries_due ON deliveries (webhook_id, next_ns) WHERE state = 'pending';
CREATE INDEX deliveries_list ON deliveries (webhook_id, created_ns, notice_id);
CREATE INDEX deliveries_notice ON deliveries (notice_id);

-- +goose Down
DROP TABLE deliveries;
DROP TABLE notices;
DROP TABLE webhooks;
