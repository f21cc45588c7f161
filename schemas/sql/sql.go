// Package sql holds the migrations of the stores: relational for SQLite and
// PostgreSQL (one text for both), clickhouse for the history.
package sql

import "embed"

// Relational holds goose migrations in relational/NNNN_name.sql.
//
//go:embed relational/*.sql
var Relational embed.FS

// ClickHouse holds the history's schema in clickhouse/NNNN_name.sql.
//
//go:embed clickhouse/*.sql
var ClickHouse embed.FS
