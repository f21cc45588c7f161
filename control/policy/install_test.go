package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Parameters of a template stand beside those of the step, and are told apart from them.
func TestParametersOfAnInstallation(t *testing.T) {
	for name, tc := range map[string]struct {
		kind string
		with map[string]string
		want string // "" is that nothing speaks against them
	}{
		"install":                     {"install", map[string]string{"template": "ubuntu", "version": "3", "parameters.version": "24.04", "force": "true"}, ""},
		"the latest":                  {"install", map[string]string{"template": "ubuntu"}, ""},
		"reinstall":                   {"reinstall", map[string]string{"parameters.x": ""}, ""},
		"reinstall without any":       {"reinstall", nil, ""},
		"install of nothing":          {"install", nil, "it needs a template"},
		"no version":                  {"install", map[string]string{"template": "ubuntu", "version": "latest"}, `"latest" is no version`},
		"a parameter without a name":  {"install", map[string]string{"template": "ubuntu", "parameters.": "x"}, `unknown parameter "parameters."`},
		"a template for a reinstall":  {"reinstall", map[string]string{"template": "ubuntu"}, "it takes those of its template"},
		"a misspelt one":              {"install", map[string]string{"templte": "ubuntu"}, "the nearest known is template"},
		"parameters of another step":  {"power_cycle", map[string]string{"parameters.x": "1"}, "it takes no parameters"},
		"a boot target without those": {"set_boot", map[string]string{"target": "pxe", "parameters.x": "1"}, "unknown parameter"},
	} {
		err := CheckAsked(tc.kind, tc.with)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := Parameters(map[string]string{"template": "ubuntu", "parameters.a": "1", "parameters.b.c": "2"})
	if d := cmp.Diff(map[string]string{"a": "1", "b.c": "2"}, got); d != "" {
		t.Error(d)
	}
	if r := Asked("install", nil).Ladder[0]; r.Destructive || !r.EndsWhatRuns() || !r.Restarts() || !r.Silences() {
		t.Errorf("%+v", r)
	}
	p := Asked("reinstall", nil)
	if r := p.Ladder[0]; !r.Destructive || !r.Restarts() || !r.Silences() {
		t.Errorf("%+v", r)
	}
}
