-- +goose Up
-- What the servers of an allocation are installed with, as its request named it: a try after a failure installs the same.
ALTER TABLE allocations ADD COLUMN template_id TEXT CONSTRAINT allocations_template REFERENCES templates (id); -- NULL is what is pinned to each server
ALTER TABLE allocations ADD COLUMN template_version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE allocations ADD COLUMN template_parameters TEXT NOT NULL DEFAULT '{}'; -- JSON; secrets are references
CREATE INDEX allocations_of_template ON allocations (template_id) WHERE template_id IS NOT NULL;
-- What has failed a moment ago may have begun something that is to be ended.
CREATE INDEX workflows_failed ON workflows (completed_ns) WHERE status = 'failed';

-- +goose Down
DROP INDEX workflows_failed;
DROP INDEX allocations_of_template;
ALTER TABLE allocations DROP COLUMN template_parameters;
ALTER TABLE allocations DROP COLUMN template_version;
ALTER TABLE allocations DROP COLUMN template_id;
