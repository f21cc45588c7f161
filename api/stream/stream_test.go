package stream_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"auspex/api/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hub(t *testing.T, readers int) (*stream.Hub, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	h, err := stream.NewHub("e", readers, reg)
	if err != nil {
		t.Fatal(err)
	}
	return h, reg
}

func send(t *testing.T, h *stream.Hub, v any) {
	t.Helper()
	if err := h.Send("changed", v, true); err != nil {
		t.Fatal(err)
	}
}

// all reads what is there until the hub closes.
func all(t *testing.T, r *stream.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReaderGetsWhatItMissed(t *testing.T) {
	h, _ := hub(t, 4)
	for n := range 300 {
		send(t, h, n)
	}
	for last, want := range map[string]string{
		"":       "data: \"hello\"",
		"e-300":  "data: \"hello\"",
		"e-298":  "id: e-299\nevent: changed\ndata: 298\n\nid: e-300\nevent: changed\ndata: 299",
		"e-2":    "event: changed\ndata: \"all\"", // no longer kept
		"e-9999": "event: changed\ndata: \"all\"",
		"old-3":  "event: changed\ndata: \"all\"",
		"junk":   "event: changed\ndata: \"all\"",
	} {
		r, ok := h.Open(nil, last, "hello", "all")
		if !ok {
			t.Fatal("refused")
		}
		buf := make([]byte, 1<<16)
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(buf[:n])); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q", last, got)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestABreakAnywhereLosesNothing has a reader come back, break off after each of the events that it is sent
// then, and come back again.
func TestABreakAnywhereLosesNothing(t *testing.T) {
	h, _ := hub(t, 1)
	for n := range 300 {
		send(t, h, n)
	}
	read := func(last string) []string {
		t.Helper()
		r, ok := h.Open(nil, last, "hello", "all")
		if !ok {
			t.Fatal("refused")
		}
		buf := make([]byte, 1<<16)
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(buf[:n]), "\n\n"), "\n\n")
	}
	data := func(events []string) (out []string) {
		for _, e := range events {
			_, text, _ := strings.Cut(e, "data: ")
			if text != `"hello"` {
				out = append(out, text)
			}
		}
		return out
	}
	for _, first := range []string{"e-300", "e-297", "e-2", "old-3", "junk"} {
		whole := read(first)
		for n := range len(whole) + 1 {
			last := first
			for _, e := range whole[:n] {
				if _, id, ok := strings.Cut("\n"+e, "\nid: "); ok {
					last, _, _ = strings.Cut(id, "\n")
				}
			}
			if got := append(data(whole[:n]), data(read(last))...); !slices.Equal(got, data(whole)) {
				t.Errorf("%s, broken off after %d events and gone on after %s: %v, want %v", first, n, last, got, data(whole))
			}
		}
	}
}

func TestSlowReaderIsEndedAndCounted(t *testing.T) {
	h, reg := hub(t, 2)
	slow, _ := h.Open(nil, "", "hello", nil)
	for n := range 100 {
		send(t, h, n)
	}
	if got := all(t, slow); strings.Count(got, "event: changed") != 64 {
		t.Errorf("read %d", strings.Count(got, "event: changed"))
	}
	if h.Readers() != 0 {
		t.Errorf("%d readers", h.Readers())
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP auspex_api_stream_dropped_total Clients of the live stream that were disconnected because they did not keep up.
# TYPE auspex_api_stream_dropped_total counter
auspex_api_stream_dropped_total 1
`), "auspex_api_stream_dropped_total"); err != nil {
		t.Error(err)
	}
}

func TestReadersAreBoundedAndEndWithTheHub(t *testing.T) {
	h, _ := hub(t, 1)
	r, ok := h.Open(nil, "", "hello", nil)
	if !ok {
		t.Fatal("refused")
	}
	if _, ok := h.Open(nil, "", "hello", nil); ok {
		t.Error("a second reader of one")
	}
	h.Close()
	if got := all(t, r); !strings.Contains(got, "event: hello") {
		t.Errorf("%q", got)
	}
	if _, ok := h.Open(nil, "", "hello", nil); ok {
		t.Error("a closed hub took a reader")
	}
}

func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"", "e-1", "e-18446744073709551615", "-", "e--1", "e-\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, last string) {
		h, _ := hub(t, 1)
		send(t, h, 1)
		send(t, h, 2)
		if _, ok := h.Open(nil, last, "hello", "all"); !ok {
			t.Error("refused")
		}
		h.Close()
	})
}
