// Package apigen holds the types and the router of the REST API, generated from
// schemas/openapi/openapi.yaml. Records of package schemas appear as themselves.
package apigen

//go:generate oapi-codegen --config ../../schemas/openapi/config.yaml ../../schemas/openapi/openapi.yaml
