package reasons_test

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"auspex/internal/reasons"
	"auspex/schemas"
)

var steps = []string{"idle", "telemetry", "health", "power_on"}

// text says a sentence in English.
func text(s schemas.Sentence) string {
	args := make(reasons.Args)
	for name, v := range s.Args {
		if inner, ok := v.(schemas.Sentence); ok {
			v = text(inner)
		}
		args[name] = v
	}
	return reasons.Text(s.ID, args)
}

var argument = regexp.MustCompile(`\{(\w+)\}`)

// sample is a text of a message.
func sample(id string) string {
	args := make(reasons.Args)
	for _, m := range argument.FindAllStringSubmatch(reasons.Template(id), -1) {
		args[m[1]] = map[string]any{
			"n": 8, "others": 12, "age": "10m0s", "why": reasons.Text(reasons.Idle, nil), "status": schemas.ServerError, "state": schemas.ActionFailed, "step": "power_on",
			"at": "12:00:00", "error": errors.New("no route to host"), "names": "gpu0, gpu1", "legal": "ready or error",
			"first": reasons.Text(reasons.Idle, nil), "second": reasons.Text(reasons.Well, nil),
		}[m[1]]
		if args[m[1]] == nil {
			args[m[1]] = "s1"
		}
	}
	return reasons.Text(id, args)
}

func TestEveryMessageIsReadBack(t *testing.T) {
	r := reasons.NewReader(steps, nil)
	for _, id := range reasons.All() {
		said := sample(id)
		s := r.Of(said)
		if s == nil || s.ID != id {
			t.Errorf("%q of %s is read as %+v", said, id, s)
		} else if again := text(*s); again != said {
			t.Errorf("%q is said anew as %q", said, again)
		}
	}
}

func TestReasonsWithinReasons(t *testing.T) {
	r := reasons.NewReader(steps, nil)
	for said, want := range map[string]string{
		"workflow w-1: health: incident i1: gpu.xid_ecc on s1/gpu0":                                                    "why.workflow_so why.step why.blamed",
		"s1: telemetry: not done within 10m0s: nobody has read gpu0, gpu1, gpu2, gpu3 and 4 more since the step began": "why.on why.step why.too_long_so why.unread why.and_more",
		"idle: error: no route to host":                      "why.step",
		"s1: cancelled":                                      "why.on why.cancelled",
		"waits: another workflow has s1":                     "why.waits why.has_workflow",
		"waits: s1 cannot be given: it is under repair":      "why.waits why.not_given why.is_repair",
		"error: burn-in of rack 4":                           "why.status_so",
		"error: workflow w-1: idle: job-1, job-2 still runs": "why.status_so why.workflow_so why.step why.still_runs",
		"a server that is retired cannot become provisioning; it may become discovered": "why.cannot_move",
		"incident i1: a.b on s1, incident i2: c.d on s1/gpu1, incident i3: e on s1":     "why.list why.blamed why.list why.blamed why.blamed",
		"8 GPUs and 12 other parts were read since 12:00:00; nobody reads dimm0":        "why.read_but why.read_parts",
		// Nobody's words but a person's or a peer's.
		"burn-in": "", "": "", "PCIe: link down": "", "rack 4, row 2": "", "s1: burn-in": "", "Incident of Monday": "",
	} {
		s := r.Of(said)
		var ids []string
		var walk func(schemas.Sentence)
		walk = func(s schemas.Sentence) {
			ids = append(ids, s.ID)
			for _, name := range []string{"first", "second", "why", "names"} {
				if inner, ok := s.Args[name].(schemas.Sentence); ok {
					walk(inner)
				}
			}
		}
		if s != nil {
			walk(*s)
			if again := text(*s); again != said {
				t.Errorf("%q is said anew as %q", said, again)
			}
		}
		if got := strings.Join(ids, " "); got != want {
			b, _ := json.Marshal(s)
			t.Errorf("%q is read as %s: %s", said, got, b)
		}
	}
	if s := r.Of("telemetry: not done within 1m30s"); s == nil || s.Args["why"].(schemas.Sentence).Args["seconds"] != 90.0 {
		t.Errorf("%+v", s)
	}
	if (*reasons.Reader)(nil).Of("cancelled") != nil {
		t.Error("nobody reads")
	}
}

func TestManyNamesAreNamedInPart(t *testing.T) {
	if got := reasons.Some([]string{"a", "b", "c", "d", "e", "f"}); got != "a, b, c, d and 2 more" {
		t.Error(got)
	}
	if got := reasons.Some([]string{"a", "b"}); got != "a, b" {
		t.Error(got)
	}
}

func TestAnErrorIsStillWhatItWas(t *testing.T) {
	err := reasons.Error(reasons.ReadError, reasons.Args{"server": "s1"}, io.EOF)
	if !errors.Is(err, io.EOF) || err.Error() != "read telemetry of s1: EOF" {
		t.Error(err)
	}
}

// FuzzReading holds that what is read says what the text does, whatever the text.
func FuzzReading(f *testing.F) {
	for _, id := range reasons.All() {
		f.Add(sample(id))
	}
	r := reasons.NewReader(steps, nil)
	f.Fuzz(func(t *testing.T, said string) {
		s := r.Of(said)
		if s == nil || slices.ContainsFunc([]string{"{", "}"}, func(c string) bool { return strings.Contains(said, c) }) {
			return
		}
		if again := text(*s); again != said {
			t.Errorf("%q is said anew as %q", said, again)
		}
	})
}
