-- +goose Up
CREATE TABLE allocations (
  id TEXT NOT NULL,
  group_id TEXT NOT NULL, -- those that were asked for together, '' is none
  user_id TEXT NOT NULL,
  team_id TEXT, -- NULL is the user's own
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '', -- why it is in this state
  purpose TEXT NOT NULL,
  start_ns BIGINT NOT NULL,
  end_ns BIGINT NOT NULL, -- the largest number is open
  wish TEXT NOT NULL, -- JSON: what was asked for
  exclusive BOOLEAN NOT NULL, -- whole servers
  report TEXT NOT NULL DEFAULT '', -- what its user said of the hardware at its end
  active_ns BIGINT NOT NULL DEFAULT 0, -- when it began
  ended_ns BIGINT NOT NULL DEFAULT 0,
  noticed_ns BIGINT NOT NULL DEFAULT 0, -- the end of which its user was told
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT allocations_id PRIMARY KEY (id),
  CONSTRAINT allocations_user_id FOREIGN KEY (user_id) REFERENCES users (id),
  CONSTRAINT allocations_team FOREIGN KEY (team_id) REFERENCES teams (id),
  CONSTRAINT allocations_status CHECK (status IN ('pending', 'active', 'completed', 'failed')),
  CONSTRAINT allocations_end_time CHECK (end_ns > start_ns),
  CONSTRAINT allocations_updated_at CHECK (updated_ns >= created_ns)
);
CREATE INDEX allocations_list ON allocations (created_ns, id);
CREATE INDEX allocations_of_user ON allocations (user_id, created_ns, id);
CREATE INDEX allocations_live ON allocations (end_ns) WHERE status IN ('pending', 'active');

-- What an allocation has: GPUs, and of whole servers these besides. Whoever writes for a server
-- has grown its fence in the same transaction, so that times are compared by one at a time; the
-- index is the last guard.
CREATE TABLE allocation_claims (
  allocation_id TEXT NOT NULL,
  server_id TEXT NOT NULL,
  gpu_id TEXT, -- NULL is the server as a whole
  unit TEXT NOT NULL, -- the GPU, or the server
  state TEXT NOT NULL,
  from_ns BIGINT NOT NULL,
  until_ns BIGINT NOT NULL,
  changed_ns BIGINT NOT NULL,
  CONSTRAINT allocation_claims_id PRIMARY KEY (allocation_id, unit),
  CONSTRAINT allocation_claims_allocation_id FOREIGN KEY (allocation_id) REFERENCES allocations (id),
  CONSTRAINT allocation_claims_server_id FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT allocation_claims_gpu_id FOREIGN KEY (gpu_id) REFERENCES gpus (id),
  CONSTRAINT allocation_claims_unit CHECK (unit = COALESCE(gpu_id, server_id)),
  CONSTRAINT allocation_claims_state CHECK (state IN ('booked', 'held', 'cleaning', 'released')),
  CONSTRAINT allocation_claims_until CHECK (until_ns > from_ns)
);
CREATE UNIQUE INDEX allocation_claims_held ON allocation_claims (unit) WHERE state IN ('held', 'cleaning');
CREATE INDEX allocation_claims_live ON allocation_claims (server_id) WHERE state <> 'released';
CREATE INDEX allocation_claims_changed ON allocation_claims (changed_ns);

CREATE TABLE quotas (
  id TEXT NOT NULL,
  team_id TEXT, -- NULL is each team that has none of its own, and each user without a team
  pool_id TEXT, -- NULL is all pools together
  max_gpus BIGINT, -- at a time; NULL is no limit
  max_servers BIGINT,
  max_seconds BIGINT, -- of one allocation
  fence BIGINT NOT NULL DEFAULT 0,
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT quotas_id PRIMARY KEY (id),
  CONSTRAINT quotas_team FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE,
  CONSTRAINT quotas_pool FOREIGN KEY (pool_id) REFERENCES pools (id) ON DELETE CASCADE,
  CONSTRAINT quotas_max_gpus CHECK (max_gpus >= 0),
  CONSTRAINT quotas_max_servers CHECK (max_servers >= 0),
  CONSTRAINT quotas_max_seconds CHECK (max_seconds > 0),
  CONSTRAINT quotas_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX quotas_team_pool ON quotas (COALESCE(team_id, ''), COALESCE(pool_id, ''));

CREATE TABLE reservations (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  team_id TEXT NOT NULL,
  pool_id TEXT NOT NULL,
  gpus BIGINT NOT NULL,
  servers BIGINT NOT NULL, -- whole ones
  from_ns BIGINT NOT NULL,
  until_ns BIGINT NOT NULL,
  created_by TEXT NOT NULL,
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT reservations_id PRIMARY KEY (id),
  CONSTRAINT reservations_team FOREIGN KEY (team_id) REFERENCES teams (id) ON DELETE CASCADE,
  CONSTRAINT reservations_pool FOREIGN KEY (pool_id) REFERENCES pools (id),
  CONSTRAINT reservations_gpus CHECK (gpus >= 0),
  CONSTRAINT reservations_servers CHECK (servers >= 0 AND gpus + servers > 0),
  CONSTRAINT reservations_end_time CHECK (until_ns > from_ns),
  CONSTRAINT reservations_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX reservations_name ON reservations (lower(name));
CREATE INDEX reservations_until ON reservations (pool_id, until_ns);

CREATE TABLE workflows (
  id TEXT NOT NULL,
  allocation_id TEXT, -- NULL is of a server alone
  server_id TEXT NOT NULL,
  tinkerbell_id TEXT NOT NULL DEFAULT '', -- of the Workflow there, '' is none
  type TEXT NOT NULL,
  exclusive BOOLEAN NOT NULL, -- of the server as a whole, and not of some of its GPUs
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  steps TEXT NOT NULL, -- JSON
  attempt BIGINT NOT NULL, -- which run of it this is, from 1
  holder TEXT NOT NULL DEFAULT '', -- the process that runs it, and until when
  holder_ns BIGINT NOT NULL DEFAULT 0,
  created_by TEXT NOT NULL,
  started_ns BIGINT NOT NULL DEFAULT 0,
  completed_ns BIGINT NOT NULL DEFAULT 0,
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT workflows_id PRIMARY KEY (id),
  CONSTRAINT workflows_allocation_id FOREIGN KEY (allocation_id) REFERENCES allocations (id),
  CONSTRAINT workflows_server_id FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT workflows_type CHECK (type IN ('deploy', 'cleanup', 'config', 'validate')),
  CONSTRAINT workflows_status CHECK (status IN ('pending', 'running', 'completed', 'failed')),
  CONSTRAINT workflows_completed_at CHECK (completed_ns = 0 OR completed_ns >= started_ns),
  CONSTRAINT workflows_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX workflows_running ON workflows (server_id) WHERE exclusive = TRUE AND status IN ('pending', 'running'); -- never two on one server
CREATE INDEX workflows_list ON workflows (created_ns, id);
CREATE INDEX workflows_of_allocation ON workflows (allocation_id);

-- +goose Down
DROP TABLE workflows;
DROP TABLE reservations;
DROP TABLE quotas;
DROP TABLE allocation_claims;
DROP TABLE allocations;
