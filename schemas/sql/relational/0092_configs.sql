-- +goose Up
-- What servers and GPUs are to be configured as, the latest version last. Nothing here is
-- applied: that goes through control.
CREATE TABLE server_configs (
  id TEXT NOT NULL,
  server_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  bios_config TEXT NOT NULL, -- JSON objects
  raid_config TEXT NOT NULL,
  network_config TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT server_configs_id PRIMARY KEY (id),
  CONSTRAINT server_configs_server_id FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT server_configs_version UNIQUE (server_id, version),
  CONSTRAINT server_configs_size CHECK (length(bios_config) <= 65536 AND length(raid_config) <= 65536 AND length(network_config) <= 65536)
);
CREATE TABLE gpu_configs (
  id TEXT NOT NULL,
  gpu_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  power_limit DOUBLE PRECISION, -- watts; NULL leaves it as it is
  memory_clock BIGINT, -- MHz
  driver_config TEXT NOT NULL, -- JSON object
  created_by TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT gpu_configs_id PRIMARY KEY (id),
  CONSTRAINT gpu_configs_gpu_id FOREIGN KEY (gpu_id) REFERENCES gpus (id),
  CONSTRAINT gpu_configs_version UNIQUE (gpu_id, version),
  CONSTRAINT gpu_configs_power_limit CHECK (power_limit > 0),
  CONSTRAINT gpu_configs_memory_clock CHECK (memory_clock > 0),
  CONSTRAINT gpu_configs_driver_config CHECK (length(driver_config) <= 65536)
);

-- +goose Down
DROP TABLE gpu_configs;
DROP TABLE server_configs;
