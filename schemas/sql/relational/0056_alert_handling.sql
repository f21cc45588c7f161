-- +goose Up
-- What people did about alerts: who acknowledged or resolved one, and what was said. What detection says of an alert is
-- in its record.
CREATE TABLE alert_handling (
  alert TEXT NOT NULL,
  status TEXT NOT NULL,
  acknowledged_by TEXT NOT NULL DEFAULT '',
  acknowledged_ns BIGINT NOT NULL DEFAULT 0,
  resolved_by TEXT NOT NULL DEFAULT '',
  resolved_ns BIGINT NOT NULL DEFAULT 0,
  revision BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT alert_handling_alert PRIMARY KEY (alert),
  CONSTRAINT alert_handling_status CHECK (status IN ('active', 'acknowledged', 'resolved'))
);
CREATE INDEX alert_handling_of ON alert_handling (status);
CREATE TABLE alert_comments (
  alert TEXT NOT NULL,
  number BIGINT NOT NULL,
  author TEXT NOT NULL,
  time_ns BIGINT NOT NULL,
  comment TEXT NOT NULL,
  CONSTRAINT alert_comments_number PRIMARY KEY (alert, number),
  CONSTRAINT alert_comments_alert FOREIGN KEY (alert) REFERENCES alert_handling (alert) ON DELETE CASCADE
);

-- +goose Down
DROP TABLE alert_comments;
DROP TABLE alert_handling;
