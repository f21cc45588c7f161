-- +goose Up
-- A workflow may bring a server up. SQLite changes no CHECK of a table that is there, so that it is made anew, as in 0091.
CREATE TABLE workflows_kept AS SELECT * FROM workflows;
DROP TABLE workflows;
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
  CONSTRAINT workflows_type CHECK (type IN ('deploy', 'cleanup', 'config', 'validate', 'bring_up')),
  CONSTRAINT workflows_status CHECK (status IN ('pending', 'running', 'completed', 'failed')),
  CONSTRAINT workflows_completed_at CHECK (completed_ns = 0 OR completed_ns >= started_ns),
  CONSTRAINT workflows_updated_at CHECK (updated_ns >= created_ns)
);
INSERT INTO workflows (id, allocation_id, server_id, tinkerbell_id, type, exclusive, status, reason, steps, attempt, holder, holder_ns, created_by, started_ns, completed_ns, revision, created_ns, updated_ns)
SELECT id, allocation_id, server_id, tinkerbell_id, type, exclusive, status, reason, steps, attempt, holder, holder_ns, created_by, started_ns, completed_ns, revision, created_ns, updated_ns FROM workflows_kept;
DROP TABLE workflows_kept;
CREATE UNIQUE INDEX workflows_running ON workflows (server_id) WHERE exclusive = TRUE AND status IN ('pending', 'running'); -- never two on one server
CREATE INDEX workflows_list ON workflows (created_ns, id);
CREATE INDEX workflows_of_allocation ON workflows (allocation_id);
CREATE INDEX workflows_live ON workflows (id) WHERE status IN ('pending', 'running');
CREATE INDEX workflows_failed ON workflows (completed_ns) WHERE status = 'failed';

-- +goose Down
DELETE FROM workflows WHERE type = 'bring_up'; -- that the CHECK allows it does no harm
