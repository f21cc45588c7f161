// Package openapi holds the description of the REST API: the routes under
// /api/v1, their parameters and their answers. The types and the router of
// package apigen are generated from it (make generate).
package openapi

import _ "embed"

// Document is the OpenAPI 3.0 document as YAML.
//
//go:embed openapi.yaml
var Document []byte
