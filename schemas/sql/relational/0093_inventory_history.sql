-- +goose Up
-- What imports changed of each resource, the latest of each. The row of resource '' is the
-- first import of all: what has no row of its own is as that brought it.
CREATE TABLE inventory_resource_versions (
  resource TEXT NOT NULL,
  version BIGINT NOT NULL, -- from 1
  time_ns BIGINT NOT NULL,
  change TEXT NOT NULL,
  source TEXT NOT NULL,
  origin TEXT NOT NULL,
  actor TEXT NOT NULL,
  kind TEXT NOT NULL,
  parent TEXT NOT NULL,
  attrs TEXT NOT NULL, -- JSON; of what was removed, as it was
  CONSTRAINT inventory_resource_versions_id PRIMARY KEY (resource, version),
  CONSTRAINT inventory_resource_versions_change CHECK (change IN ('added', 'changed', 'removed'))
);
INSERT INTO inventory_resource_versions (resource, version, time_ns, change, source, origin, actor, kind, parent, attrs)
SELECT '', 1, time_ns, 'added', source, origin, '', '', '', '{}' FROM inventory_imports ORDER BY version LIMIT 1;

-- +goose Down
DROP TABLE inventory_resource_versions;
