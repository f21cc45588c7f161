-- +goose Up
-- What a source brought and lost by its last imports, and when, so that small losses
-- add up: JSON in Zstandard; NULL is nothing.
ALTER TABLE inventory_imports ADD COLUMN lost BYTEA;

-- +goose Down
ALTER TABLE inventory_imports DROP COLUMN lost;
