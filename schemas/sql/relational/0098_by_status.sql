-- +goose Up
-- Lists of what is in a state read what they answer, and not the fleet.
CREATE INDEX servers_by_status ON servers (status, name);
CREATE INDEX gpus_by_status ON gpus (status, name);

-- +goose Down
DROP INDEX gpus_by_status;
DROP INDEX servers_by_status;
