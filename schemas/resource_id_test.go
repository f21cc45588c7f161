package schemas

import "testing"

// The ids are those of Python's uuid module:
// uuid5(uuid5(uuid5(NAMESPACE_DNS, "auspex.dev"), site), name).
func TestResourceIDsAreNameBasedUUIDs(t *testing.T) {
	for _, tc := range []struct{ site, name, want string }{
		{"dc1", "gpu-r01-03", "56a7caac-f472-5e8b-8e1a-c6dbe1cd1e75"},
		{"dc1", "gpu-r01-03/gpu0", "ad6e0391-edd1-527d-a38d-722bacfbd7a4"},
		{"dc2", "gpu-r01-03", "ae7c769b-5778-5158-ae22-ded143009369"},
		{"", "leaf-r01", "50224dbe-ff23-5501-897a-533204442bc6"},
		{"机房", "机柜/甲", "48309607-36b5-55cf-86e5-57384fee3762"},
	} {
		if got := SpaceOf(tc.site).ID(tc.name).String(); got != tc.want {
			t.Errorf("id of %s at %q: %s, want %s", tc.name, tc.site, got, tc.want)
		}
	}
}
