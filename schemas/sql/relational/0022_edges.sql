-- +goose Up
-- Proposals of edges, one for each pair of kinds of events; doc is an EdgeProposal, JSON.
CREATE TABLE learned_edges (
  id TEXT NOT NULL PRIMARY KEY,
  state TEXT NOT NULL, -- open, accepted, declined or withdrawn
  gain DOUBLE PRECISION NOT NULL,
  doc TEXT NOT NULL
);

-- What people decided on them. Rows are only ever added; the last one stands.
CREATE TABLE learned_edge_decisions (
  id TEXT NOT NULL,
  revision BIGINT NOT NULL,
  doc TEXT NOT NULL, -- an EdgeDecision, JSON
  PRIMARY KEY (id, revision)
);

-- +goose Down
DROP TABLE learned_edge_decisions;
DROP TABLE learned_edges;
