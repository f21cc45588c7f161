-- +goose Up
-- When edges were last looked for by the running product; 0 is never.
ALTER TABLE learned_active ADD COLUMN sought_ns BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE learned_active DROP COLUMN sought_ns;
