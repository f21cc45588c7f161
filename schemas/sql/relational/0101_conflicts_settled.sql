-- +goose Up
-- A conflict may be none any more: both sides say the same again. A check cannot be changed in
-- SQLite, so the table is made anew.
CREATE TABLE conflicts_were AS SELECT * FROM conflicts;
DROP TABLE conflicts;
CREATE TABLE conflicts (
  id TEXT NOT NULL,
  subject TEXT NOT NULL, -- what it is about, without the values: there is one open row of each
  kind TEXT NOT NULL,
  resource TEXT NOT NULL,
  field TEXT NOT NULL,
  sides TEXT NOT NULL, -- JSON
  status TEXT NOT NULL,
  decision TEXT NOT NULL DEFAULT '',
  comment TEXT NOT NULL DEFAULT '', -- of who has decided; why it is settled
  decided_by TEXT NOT NULL DEFAULT '',
  decided_ns BIGINT NOT NULL DEFAULT 0, -- or settled
  first_ns BIGINT NOT NULL,
  last_ns BIGINT NOT NULL,
  CONSTRAINT conflicts_id PRIMARY KEY (id),
  CONSTRAINT conflicts_kind CHECK (kind IN ('two_sources', 'cable', 'serial_twice')),
  CONSTRAINT conflicts_status CHECK (status IN ('open', 'decided', 'settled')),
  CONSTRAINT conflicts_decision CHECK (decision IN ('', 'left', 'right', 'dismissed'))
);
INSERT INTO conflicts SELECT * FROM conflicts_were;
DROP TABLE conflicts_were;
CREATE INDEX conflicts_list ON conflicts (status, first_ns, id);
CREATE INDEX conflicts_subject ON conflicts (subject);

-- +goose Down
CREATE TABLE conflicts_were AS SELECT * FROM conflicts WHERE status<>'settled';
DROP TABLE conflicts;
CREATE TABLE conflicts (
  id TEXT NOT NULL,
  subject TEXT NOT NULL,
  kind TEXT NOT NULL,
  resource TEXT NOT NULL,
  field TEXT NOT NULL,
  sides TEXT NOT NULL,
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
INSERT INTO conflicts SELECT * FROM conflicts_were;
DROP TABLE conflicts_were;
CREATE INDEX conflicts_list ON conflicts (status, first_ns, id);
CREATE INDEX conflicts_subject ON conflicts (subject);
