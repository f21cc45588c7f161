-- +goose Up
-- Maintenance windows that were declared. end_ns is when a window ends or was ended; told
-- counts what the bus has of it: 1 that it was declared, 2 that it was ended early.
CREATE TABLE maintenance_windows (
  id TEXT NOT NULL PRIMARY KEY,
  declared_ns BIGINT NOT NULL,
  from_ns BIGINT NOT NULL,
  end_ns BIGINT NOT NULL,
  due BIGINT NOT NULL, -- what is to be told
  told BIGINT NOT NULL,
  doc TEXT NOT NULL -- a Maintenance, JSON
);
CREATE INDEX maintenance_windows_end ON maintenance_windows (end_ns);

-- +goose Down
DROP TABLE maintenance_windows;
