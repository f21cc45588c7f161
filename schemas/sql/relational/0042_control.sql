-- +goose Up
-- When the request of a step had gone out for certain; 0 while it is merely decided.
ALTER TABLE control_actions ADD COLUMN sent_ns BIGINT NOT NULL DEFAULT 0;
-- Steps of earlier versions said so in words alone.
UPDATE control_actions SET sent_ns = intent_ns WHERE state = 'verifying' AND doc LIKE '%"detail":"sent"%';

-- +goose Down
ALTER TABLE control_actions DROP COLUMN sent_ns;
