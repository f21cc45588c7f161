-- +goose Up
CREATE INDEX workflows_live ON workflows (id) WHERE status IN ('pending', 'running');

-- +goose Down
DROP INDEX workflows_live;
