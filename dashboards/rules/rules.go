// Package rules holds the alert rules that Auspex evaluates over its hot window.
// They are ordinary Prometheus rule files with three labels of their own: type
// and severity say what the event is (formats, section 2), code is optional; the
// event's resource is the series' label of that name. tests holds promtool's
// unit tests of them.
package rules

import "embed"

// Files holds the rule files, *.yml.
//
//go:embed *.yml
var Files embed.FS
