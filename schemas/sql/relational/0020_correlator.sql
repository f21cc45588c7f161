-- +goose Up
-- What the correlator needs to go on after a crash: how far it has read the
-- topic alerts, the events that its open decisions rest on, and the changes of
-- incidents that are decided and may not be published yet.
CREATE TABLE correlator_positions (
  part BIGINT NOT NULL PRIMARY KEY,
  next_offset BIGINT NOT NULL
);
CREATE TABLE correlator_journal (
  seq BIGINT NOT NULL PRIMARY KEY,
  event TEXT NOT NULL,
  doc TEXT NOT NULL
);
CREATE INDEX correlator_journal_event ON correlator_journal (event);
CREATE TABLE correlator_outbox (
  seq BIGINT NOT NULL PRIMARY KEY,
  incident TEXT NOT NULL,
  doc TEXT NOT NULL
);

-- +goose Down
DROP TABLE correlator_outbox;
DROP TABLE correlator_journal;
DROP TABLE correlator_positions;
