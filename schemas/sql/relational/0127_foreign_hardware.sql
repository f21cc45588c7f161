-- +goose Up
-- What other systems have of machines otherwise than the inventory, as it was told last, and the
-- events of it that are not on the bus yet.
CREATE TABLE foreign_hardware (
  place TEXT NOT NULL, -- system and namespace
  object TEXT NOT NULL,
  server TEXT NOT NULL, -- by name; '' is none
  field TEXT NOT NULL, -- '' is a machine that the inventory does not have
  doc TEXT NOT NULL, -- JSON
  CONSTRAINT foreign_hardware_key PRIMARY KEY (place, object, server, field)
);
CREATE TABLE foreign_hardware_events (
  seq BIGINT NOT NULL,
  doc TEXT NOT NULL, -- JSON
  CONSTRAINT foreign_hardware_events_seq PRIMARY KEY (seq)
);

-- +goose Down
DROP TABLE foreign_hardware_events;
DROP TABLE foreign_hardware;
