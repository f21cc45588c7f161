-- +goose Up
-- What was said of a resource in two ways, and what somebody has decided of it. The id follows from
-- what is said, so that the same again is the same row.
CREATE TABLE conflicts (
  id TEXT NOT NULL,
  subject TEXT NOT NULL, -- what it is about, without the values: there is one open row of each
  kind TEXT NOT NULL,
  resource TEXT NOT NULL,
  field TEXT NOT NULL,
  sides TEXT NOT NULL, -- JSON
  status TEXT NOT NULL,
  decision TEXT NOT NULL DEFAULT '',
  comment TEXT NOT NULL DEFAULT '',
  decided_by TEXT NOT NULL DEFAULT '',
  decided_ns BIGINT NOT NULL DEFAULT 0,
  first_ns BIGINT NOT NULL,
  last_ns BIGINT NOT NULL,
  CONSTRAINT conflicts_id PRIMARY KEY (id),
  CONSTRAINT conflicts_kind CHECK (kind IN ('two_sources', 'cable', 'serial_twice')),
  CONSTRAINT conflicts_status CHECK (status IN ('open', 'decided')),
  CONSTRAINT conflicts_decision CHECK (decision IN ('', 'left', 'right', 'dismissed'))
);
CREATE INDEX conflicts_list ON conflicts (status, first_ns, id);
CREATE INDEX conflicts_subject ON conflicts (subject);

-- +goose Down
DROP TABLE conflicts;
