-- +goose Up
-- Which collect process reads which devices. A shard is what a device's id hashes to; it is read in the term of a member that its token names.
CREATE TABLE collect_terms (last BIGINT NOT NULL); -- one row: tokens only grow, whoever comes and goes
INSERT INTO collect_terms VALUES (0);
CREATE TABLE collect_members (
  name TEXT NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL, -- of its present term
  beat BIGINT NOT NULL -- grows as long as the member lives; others time it by their own clocks
);
CREATE TABLE collect_shards (
  shard INTEGER NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL -- 0 is nobody
);
INSERT INTO collect_shards WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i < 511) SELECT i, 0 FROM n;

-- +goose Down
DROP TABLE collect_shards;
DROP TABLE collect_members;
DROP TABLE collect_terms;
