-- +goose Up
-- What has become of configurations in the world, one row a server or GPU that has one.
CREATE TABLE config_states (
  subject TEXT NOT NULL, -- the id of a server or GPU
  kind TEXT NOT NULL,
  revision BIGINT NOT NULL, -- of the row
  updated_ns BIGINT NOT NULL,
  doc TEXT NOT NULL, -- schemas.ConfigState as JSON
  CONSTRAINT config_states_subject PRIMARY KEY (subject),
  CONSTRAINT config_states_kind CHECK (kind IN ('server', 'gpu'))
);
CREATE INDEX server_configs_created ON server_configs (created_ns);
CREATE INDEX gpu_configs_created ON gpu_configs (created_ns);

-- +goose Down
DROP INDEX gpu_configs_created;
DROP INDEX server_configs_created;
DROP TABLE config_states;
