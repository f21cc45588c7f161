-- +goose Up
-- What of the open incidents was repaired, and when: they close soon after it.
CREATE TABLE correlator_repairs (
  incident TEXT NOT NULL PRIMARY KEY,
  at_ns BIGINT NOT NULL
);

-- +goose Down
DROP TABLE correlator_repairs;
