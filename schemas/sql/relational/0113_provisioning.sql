-- +goose Up
-- How systems are installed. A version never changes once it is made.
CREATE TABLE templates (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  version BIGINT NOT NULL, -- the latest
  revision BIGINT NOT NULL,
  created_ns BIGINT NOT NULL,
  updated_ns BIGINT NOT NULL,
  CONSTRAINT templates_id PRIMARY KEY (id),
  CONSTRAINT templates_name UNIQUE (name),
  CONSTRAINT templates_status CHECK (status IN ('active', 'retired'))
);
CREATE TABLE template_versions (
  template_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  description TEXT NOT NULL,
  os_family TEXT NOT NULL,
  architectures TEXT NOT NULL, -- a list of JSON
  text TEXT NOT NULL,
  parameters TEXT NOT NULL, -- a JSON Schema
  created_by TEXT NOT NULL,
  created_ns BIGINT NOT NULL,
  CONSTRAINT template_versions_version PRIMARY KEY (template_id, version),
  CONSTRAINT template_versions_template_id FOREIGN KEY (template_id) REFERENCES templates (id),
  CONSTRAINT template_versions_os_family CHECK (os_family IN ('talos', 'flatcar', 'ubuntu', 'other')),
  CONSTRAINT template_versions_text CHECK (length(text) BETWEEN 1 AND 262144),
  CONSTRAINT template_versions_parameters CHECK (length(parameters) <= 65536)
);
-- What people say of a server beside the inventory, and what it is installed with.
CREATE TABLE hardware_overrides (
  server_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  doc TEXT NOT NULL, -- schemas.HardwareOverrides as JSON, without the template
  template_id TEXT,
  template_version BIGINT, -- NULL is the latest
  changed_by TEXT NOT NULL,
  changed_ns BIGINT NOT NULL,
  CONSTRAINT hardware_overrides_server_id PRIMARY KEY (server_id),
  CONSTRAINT hardware_overrides_server FOREIGN KEY (server_id) REFERENCES servers (id),
  CONSTRAINT hardware_overrides_template FOREIGN KEY (template_id) REFERENCES templates (id),
  CONSTRAINT hardware_overrides_template_version FOREIGN KEY (template_id, template_version) REFERENCES template_versions (template_id, version),
  CONSTRAINT hardware_overrides_doc CHECK (length(doc) <= 262144)
);
CREATE INDEX hardware_overrides_of_template ON hardware_overrides (template_id, template_version);

-- +goose Down
DROP TABLE hardware_overrides;
DROP TABLE template_versions;
DROP TABLE templates;
