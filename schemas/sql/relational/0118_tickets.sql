-- +goose Up
-- What somebody says of a step that is theirs to do: what they did, or where that is written.
ALTER TABLE control_intents ADD COLUMN note TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE control_intents DROP COLUMN note;
