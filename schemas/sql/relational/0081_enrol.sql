-- +goose Up
-- What node agents propose for the inventory, and what people decided.
CREATE TABLE enrol_proposals (
  id TEXT NOT NULL PRIMARY KEY, -- follows from what it says
  subject TEXT NOT NULL, -- the server, or the key of a machine that stands nowhere
  machine TEXT NOT NULL, -- the key of a machine that dials in, or ""
  state TEXT NOT NULL, -- open, accepted, declined
  first_ns BIGINT NOT NULL, -- when it was made
  decided_ns BIGINT NOT NULL DEFAULT 0,
  decided_by TEXT NOT NULL DEFAULT '',
  why TEXT NOT NULL DEFAULT '',
  doc TEXT NOT NULL -- JSON
);
CREATE INDEX enrol_proposals_list ON enrol_proposals (state, first_ns, id);
CREATE INDEX enrol_proposals_subject ON enrol_proposals (subject);

-- +goose Down
DROP TABLE enrol_proposals;
