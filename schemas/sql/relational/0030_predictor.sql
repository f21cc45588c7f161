-- +goose Up
-- What the predictor has learnt of a series: a bounded summary, written now and
-- then, so that a restart does not begin to learn again.
CREATE TABLE predictor_series (
  id TEXT PRIMARY KEY,
  updated_ns BIGINT NOT NULL,
  state TEXT NOT NULL -- binary, base64
);

-- +goose Down
DROP TABLE predictor_series;
