-- +goose Up
-- What was found of the drives of servers after they were to be wiped: one row each time, which never changes.
CREATE TABLE wipes (
  id TEXT NOT NULL, -- of the action and what it told
  server_id TEXT NOT NULL,
  number BIGINT NOT NULL, -- of the server, from 1
  action_id TEXT NOT NULL,
  proven BOOLEAN NOT NULL,
  doc TEXT NOT NULL, -- schemas.Wipe as JSON
  created_ns BIGINT NOT NULL,
  CONSTRAINT wipes_id PRIMARY KEY (id),
  CONSTRAINT wipes_number UNIQUE (server_id, number),
  CONSTRAINT wipes_server_id FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT wipes_doc CHECK (length(doc) <= 8388608)
);
CREATE INDEX wipes_action ON wipes (action_id);

-- With what workflows that wipe tell what they found, while they go on. The token stands in the Template of the workflow for as long.
CREATE TABLE wipe_orders (
  action_id TEXT NOT NULL,
  server_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  token TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT wipe_orders_action_id PRIMARY KEY (action_id),
  CONSTRAINT wipe_orders_token UNIQUE (token),
  CONSTRAINT wipe_orders_server_id FOREIGN KEY (server_id) REFERENCES servers (id)
);

-- +goose Down
DROP TABLE wipe_orders;
DROP TABLE wipes;
