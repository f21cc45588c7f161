-- +goose Up
-- Sweeps of addresses for board controllers, and what has answered.
CREATE TABLE discoveries (
  id TEXT NOT NULL,
  ranges TEXT NOT NULL, -- JSON, as are the ports
  redfish_ports TEXT NOT NULL,
  ipmi_ports TEXT NOT NULL,
  credential TEXT NOT NULL, -- the name of a secret
  status TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  addresses BIGINT NOT NULL,
  asked BIGINT NOT NULL DEFAULT 0, -- addresses before this number need not be asked again
  holder TEXT NOT NULL DEFAULT '', -- who works on it, until lease_ns
  lease_ns BIGINT NOT NULL DEFAULT 0,
  created_by TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  started_ns BIGINT NOT NULL DEFAULT 0,
  ended_ns BIGINT NOT NULL DEFAULT 0,
  CONSTRAINT discoveries_id PRIMARY KEY (id),
  CONSTRAINT discoveries_addresses CHECK (addresses > 0),
  CONSTRAINT discoveries_status CHECK (status IN ('waiting', 'running', 'completed', 'failed', 'cancelled'))
);
CREATE INDEX discoveries_list ON discoveries (created_ns, id);
CREATE INDEX discoveries_live ON discoveries (lease_ns) WHERE status IN ('waiting', 'running');
CREATE TABLE discovery_finds (
  id TEXT NOT NULL,
  discovery_id TEXT NOT NULL,
  number BIGINT NOT NULL, -- of the address in the sweep, from 0
  address TEXT NOT NULL,
  protocol TEXT NOT NULL,
  result TEXT NOT NULL,
  message TEXT NOT NULL,
  seen_ns BIGINT NOT NULL,
  hardware TEXT NOT NULL, -- JSON
  CONSTRAINT discovery_finds_id PRIMARY KEY (id),
  CONSTRAINT discovery_finds_discovery_id FOREIGN KEY (discovery_id) REFERENCES discoveries (id) ON DELETE CASCADE,
  CONSTRAINT discovery_finds_result CHECK (result IN ('found', 'refused', 'unreadable'))
);
CREATE UNIQUE INDEX discovery_finds_address ON discovery_finds (discovery_id, number, address, protocol);

-- +goose Down
DROP TABLE discovery_finds;
DROP TABLE discoveries;
