-- +goose Up
-- What power limits control has set on servers, and what was set before: one row a server, which stays when the limit is taken away.
CREATE TABLE power_caps (
  server TEXT NOT NULL, -- its name
  feed TEXT NOT NULL, -- the PDU that was lost; empty where somebody asked for the limit
  action TEXT NOT NULL,
  doc TEXT NOT NULL, -- schemas.PowerCap as JSON
  released_ns BIGINT NOT NULL, -- 0 while the limit is ours
  CONSTRAINT power_caps_server PRIMARY KEY (server)
);
CREATE INDEX power_caps_feed ON power_caps (feed);

-- +goose Down
DROP TABLE power_caps;
