-- +goose Up
-- Each import of a source (formats, section 1). The last row of a source is what it
-- brings now, the earlier ones can be restored. topology is JSON in Zstandard.
CREATE TABLE inventory_imports (
  version BIGINT NOT NULL PRIMARY KEY,
  source TEXT NOT NULL,
  time_ns BIGINT NOT NULL,
  origin TEXT NOT NULL,
  resources BIGINT NOT NULL,
  links BIGINT NOT NULL,
  added BIGINT NOT NULL,
  changed BIGINT NOT NULL,
  removed BIGINT NOT NULL,
  topology BYTEA NOT NULL
);
CREATE INDEX inventory_imports_source ON inventory_imports (source, version);

-- +goose Down
DROP TABLE inventory_imports;
