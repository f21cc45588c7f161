-- +goose Up
-- What ports of switches see at the other ends of their cables, as they have told it last: it is held
-- against the inventory again when that changes.
CREATE TABLE port_neighbors (
  device TEXT NOT NULL,
  port TEXT NOT NULL, -- as its device calls it
  neighbors TEXT NOT NULL, -- JSON
  seen_ns BIGINT NOT NULL,
  CONSTRAINT port_neighbors_port PRIMARY KEY (device, port)
);

-- +goose Down
DROP TABLE port_neighbors;
