-- +goose Up
-- Who approved a step that is not decided yet, or let it through a change freeze: where two persons must
-- approve, the first is not forgotten when the process ends. What was said is in the action once it is taken.
CREATE TABLE control_votes (
  action TEXT NOT NULL REFERENCES control_actions (id),
  verb TEXT NOT NULL, -- approve, override
  voter TEXT NOT NULL, -- id of the person, or the name of a token that is nobody's
  time_ns BIGINT NOT NULL,
  doc TEXT NOT NULL, -- an Approval, JSON
  PRIMARY KEY (action, verb, voter)
);

-- +goose Down
DROP TABLE control_votes;
