package policy

import "testing"

// A policy file is a set of policies, or an error that names it.
func FuzzParse(f *testing.F) {
	f.Add(defaults)
	f.Add([]byte("policies: [{name: a, match: {type: gpu.xid}}]\n"))
	f.Add([]byte("policies:\n- &a {name: a, with: *a}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<16 {
			return
		}
		_, _ = parse(b)
		if _, err := read("policies.yaml", b); err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
	})
}
