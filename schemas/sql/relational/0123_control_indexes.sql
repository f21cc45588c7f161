-- +goose Up
-- What waits for the bus, and what ended something of late, are a few rows of a table that only grows.
CREATE INDEX control_actions_unpublished ON control_actions (id) WHERE published = FALSE;
CREATE INDEX control_actions_destructive ON control_actions (intent_ns) WHERE destructive = TRUE;
CREATE INDEX control_cases_subject ON control_cases (subject, state);
CREATE INDEX control_cases_state ON control_cases (state, updated_ns);

-- +goose Down
DROP INDEX control_cases_state;
DROP INDEX control_cases_subject;
DROP INDEX control_actions_destructive;
DROP INDEX control_actions_unpublished;
