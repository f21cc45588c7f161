package messages

import "testing"

func TestText(t *testing.T) {
	cases := []struct {
		id   string
		args map[string]any
		want string
	}{
		{"say.overload", map[string]any{"resource": "pdu-r01-b"}, "pdu-r01-b reports an overload."},
		{"say.servers_silent", map[string]any{"n": 1}, "1 server no longer answers."},
		{"say.servers_silent", map[string]any{"n": 3}, "3 servers no longer answer."},
		{"say.ports_down", map[string]any{"n": 2, "within": 0.4}, "2 ports lost their link within 0.4 s."},
		{"say.overload", nil, "{resource} reports an overload."},
		{"say.nonsense", nil, "say.nonsense"},
	}
	for _, c := range cases {
		if got := Text(c.id, c.args); got != c.want {
			t.Errorf("%s: %q, want %q", c.id, got, c.want)
		}
	}
}
