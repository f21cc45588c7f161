-- +goose Up
-- How far the predictor had read each partition of the topic telemetry when it
-- wrote the state of its series: what came later is read again after a crash.
CREATE TABLE predictor_positions (
  part BIGINT NOT NULL PRIMARY KEY,
  next_offset BIGINT NOT NULL
);

-- +goose Down
DROP TABLE predictor_positions;
