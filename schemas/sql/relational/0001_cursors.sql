-- +goose Up
-- Times are Unix nanoseconds in BIGINT: SQLite's own stamps have whole seconds.
CREATE TABLE cursors (
  collector TEXT NOT NULL,
  device TEXT NOT NULL,
  position TEXT NOT NULL,
  updated_ns BIGINT NOT NULL,
  PRIMARY KEY (collector, device)
);

-- +goose Down
DROP TABLE cursors;
