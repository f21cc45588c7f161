-- +goose Up
-- Long lists read what they answer and not the fleet: what is in a state by name, and each order page by page.
CREATE INDEX gpus_in_status ON gpus (status, name);
CREATE INDEX servers_in_status ON servers (status, name);
CREATE INDEX gpus_by_status ON gpus (status, id);
CREATE INDEX gpus_by_model ON gpus (model, id);
DROP INDEX gpus_updated;
CREATE INDEX gpus_updated ON gpus (updated_ns, id);
CREATE INDEX allocations_by_start ON allocations (start_ns, id);
CREATE INDEX allocations_by_end ON allocations (end_ns, id);
CREATE INDEX workflows_by_update ON workflows (updated_ns, id);
CREATE INDEX workflows_of_server ON workflows (server_id, status);

-- +goose Down
DROP INDEX workflows_of_server;
DROP INDEX workflows_by_update;
DROP INDEX allocations_by_end;
DROP INDEX allocations_by_start;
DROP INDEX gpus_updated;
CREATE INDEX gpus_updated ON gpus (updated_ns);
DROP INDEX gpus_by_model;
DROP INDEX gpus_by_status;
DROP INDEX servers_in_status;
DROP INDEX gpus_in_status;
