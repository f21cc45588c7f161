-- +goose Up
-- Who says what of the inventory. said names the sources that say a resource as it is, or that bring
-- a link, by number, each with the version of the addition that said it last, where that was one:
-- `1 3@57`. What a source says otherwise is a word.
ALTER TABLE inventory_resources ADD COLUMN said TEXT NOT NULL DEFAULT '';
ALTER TABLE inventory_links ADD COLUMN said TEXT NOT NULL DEFAULT '';
CREATE INDEX inventory_links_to ON inventory_links (to_id);
CREATE TABLE inventory_sources (
  number BIGINT NOT NULL PRIMARY KEY,
  source TEXT NOT NULL UNIQUE,
  version BIGINT NOT NULL -- of its last import that was no addition
);
CREATE TABLE inventory_words (
  resource TEXT NOT NULL,
  source BIGINT NOT NULL,
  version BIGINT NOT NULL, -- of the addition that said it; 0 is the source's
  kind TEXT NOT NULL,
  parent TEXT NOT NULL,
  attrs TEXT NOT NULL,
  PRIMARY KEY (resource, source)
);
-- Of an addition, topology is what it changed of what its source brings.
ALTER TABLE inventory_imports ADD COLUMN addition BOOLEAN NOT NULL DEFAULT FALSE;
-- Of an import that follows an addition, what its source brought until then.
ALTER TABLE inventory_imports ADD COLUMN before BYTEA;
-- What each version of the resources (inventory_version) touched: names as a list of JSON, null is all.
CREATE TABLE inventory_changes (
  version BIGINT NOT NULL PRIMARY KEY,
  resources TEXT NOT NULL
);

-- +goose Down
DROP TABLE inventory_changes;
ALTER TABLE inventory_imports DROP COLUMN before;
ALTER TABLE inventory_imports DROP COLUMN addition;
DROP TABLE inventory_words;
DROP TABLE inventory_sources;
DROP INDEX inventory_links_to;
ALTER TABLE inventory_links DROP COLUMN said;
ALTER TABLE inventory_resources DROP COLUMN said;
