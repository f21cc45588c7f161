-- +goose Up
-- The inventory (formats, section 1). attrs and resources are JSON.
CREATE TABLE inventory_resources (
  id TEXT NOT NULL PRIMARY KEY,
  kind TEXT NOT NULL,
  parent TEXT NOT NULL,
  attrs TEXT NOT NULL
);
CREATE TABLE inventory_links (
  from_id TEXT NOT NULL,
  to_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  PRIMARY KEY (from_id, to_id, kind)
);
-- A running workload has end_ns 0.
CREATE TABLE inventory_workloads (
  id TEXT NOT NULL PRIMARY KEY,
  resources TEXT NOT NULL,
  start_ns BIGINT NOT NULL,
  end_ns BIGINT NOT NULL,
  attrs TEXT NOT NULL
);
CREATE INDEX inventory_workloads_end ON inventory_workloads (end_ns);
-- One row: counts the changes of each half, so that other processes see them.
CREATE TABLE inventory_version (
  id INTEGER NOT NULL PRIMARY KEY,
  resources BIGINT NOT NULL,
  workloads BIGINT NOT NULL
);
INSERT INTO inventory_version (id, resources, workloads) VALUES (1, 0, 0);

-- +goose Down
DROP TABLE inventory_version;
DROP TABLE inventory_workloads;
DROP TABLE inventory_links;
DROP TABLE inventory_resources;
