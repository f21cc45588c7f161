// Package grafana holds dashboards for Grafana over the Prometheus read API
// (deploy/grafana provisions them); its test reads every query in them.
package grafana
