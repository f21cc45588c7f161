-- +goose Up
CREATE TABLE pools (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  fence BIGINT NOT NULL DEFAULT 0, -- grows while something is taken of it: the lock of its reservations
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT pools_id PRIMARY KEY (id),
  CONSTRAINT pools_updated_at CHECK (updated_ns >= created_ns)
);
CREATE UNIQUE INDEX pools_name ON pools (lower(name));
INSERT INTO pools (id, name, description, revision, created_ns, updated_ns)
VALUES ('00000000-0000-8000-8000-000000000001', 'default', 'what is in no other pool', 1, 0, 0);

-- Servers and GPUs of the inventory, and those that were. What they are is written by imports;
-- their life, pool and hold are theirs.
CREATE TABLE servers (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '', -- why it is in this state
  pool_id TEXT NOT NULL,
  labels TEXT NOT NULL DEFAULT '{}', -- JSON
  hold TEXT NOT NULL DEFAULT '', -- why nobody is given it, '' is no hold
  hold_by TEXT NOT NULL DEFAULT '',
  ipmi_ip TEXT NOT NULL,
  redfish_url TEXT NOT NULL,
  management_ip TEXT NOT NULL,
  serial_number TEXT NOT NULL,
  present BOOLEAN NOT NULL, -- in the inventory
  fence BIGINT NOT NULL DEFAULT 0, -- grows with what is decided of it: the lock of its claims
  revision BIGINT NOT NULL,
  since_ns BIGINT NOT NULL, -- of its state
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT servers_id PRIMARY KEY (id),
  CONSTRAINT servers_name UNIQUE (name),
  CONSTRAINT servers_pool FOREIGN KEY (pool_id) REFERENCES pools (id),
  CONSTRAINT servers_status CHECK (status IN ('discovered', 'provisioning', 'ready', 'error', 'retired')),
  CONSTRAINT servers_updated_at CHECK (updated_ns >= created_ns)
);
CREATE INDEX servers_of_pool ON servers (pool_id);
CREATE INDEX servers_serial ON servers (serial_number);
CREATE INDEX servers_updated ON servers (updated_ns);
CREATE TABLE gpus (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  server_id TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  memory_gb DOUBLE PRECISION, -- NULL is not known
  serial_number TEXT NOT NULL,
  driver_version TEXT NOT NULL,
  cuda_version TEXT NOT NULL,
  present BOOLEAN NOT NULL,
  revision BIGINT NOT NULL,
  since_ns BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT gpus_id PRIMARY KEY (id),
  CONSTRAINT gpus_name UNIQUE (name),
  CONSTRAINT gpus_server_id FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT gpus_status CHECK (status IN ('available', 'allocated', 'in_use', 'error')),
  CONSTRAINT gpus_memory_gb CHECK (memory_gb > 0),
  CONSTRAINT gpus_updated_at CHECK (updated_ns >= created_ns)
);
CREATE INDEX gpus_of_server ON gpus (server_id);
CREATE INDEX gpus_serial ON gpus (serial_number);
CREATE INDEX gpus_updated ON gpus (updated_ns);

-- +goose Down
DROP TABLE gpus;
DROP TABLE servers;
DROP TABLE pools;
