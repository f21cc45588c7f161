package gpuwatch

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"auspex/schemas"
)

type story struct {
	watch Watch
	told  []string
	ids   map[string]bool
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{ids: map[string]bool{}}
	s.watch = Watch{Device: "d", Source: schemas.SourceNVML, After: 2, Unread: "not read in %d tries", Emit: func(ev schemas.Event) {
		if ev.ID == "" || s.ids[ev.ID] {
			t.Errorf("id %q of %s is not its own", ev.ID, ev.Type)
		}
		s.ids[ev.ID] = true
		s.told = append(s.told, fmt.Sprintf("%s %s %s %s", ev.Type, ev.Code, ev.State, ev.Attr("part")))
	}}
	return s
}

// again is the watch of the next run, with what this one knew.
func (s *story) again(t *testing.T) *story {
	t.Helper()
	text, err := s.watch.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	next := newStory(t)
	if err := next.watch.UnmarshalText(text); err != nil {
		t.Fatal(err)
	}
	next.ids = s.ids
	return next
}

func TestWhatWasRaisedIsClearedByTheNextRun(t *testing.T) {
	now := time.Now()
	s := newStory(t)
	s.watch.Name(3, "GPU-a", "0000:4e:00.0")
	s.watch.Stalled(now, 3, true, "a call has not returned")
	s.watch.Stalled(now, 3, true, "a call has not returned")
	s.watch.Misses(now, 3, Lost)
	s.watch.Misses(now, 3, Lost)
	s.watch.Misses(now, 3, Lost)
	s.watch.Driver(now, true, "the driver is not loaded")
	want := []string{"gpu.stalled CALL raised gpu3", "gpu.missing GPU_IS_LOST raised gpu3", "service.failed nvidia-driver raised "}
	if !slices.Equal(s.told, want) {
		t.Errorf("%q, want %q", s.told, want)
	}
	next := s.again(t)
	if got := next.watch.Boards(); len(got) != 1 || got[3] != (Board{"GPU-a", "0000:4e:00.0"}) || next.watch.Changed() {
		t.Error(got)
	}
	next.watch.Driver(now, false, "it answers")
	next.watch.Stalled(now, 3, false, "it has returned")
	next.watch.Answers(now, 3)
	want = []string{"service.failed nvidia-driver cleared ", "gpu.stalled CALL cleared gpu3", "gpu.missing GPU_IS_LOST cleared gpu3"}
	if !slices.Equal(next.told, want) {
		t.Errorf("%q, want %q", next.told, want)
	}
}

func TestCountersOfBeforeAreNoEvents(t *testing.T) {
	now, nan := time.Now(), math.NaN()
	s := newStory(t)
	s.watch.Name(0, "GPU-a", "")
	s.watch.Reads(now, 0, Reading{Reasons: nan, Pending: nan, DBE: 4, XID: nan})
	s = s.again(t)
	s.watch.Reads(now, 0, Reading{Reasons: nan, Pending: nan, DBE: 4, XID: nan})
	s.watch.Reads(now, 0, Reading{Reasons: 0x44, Pending: 1, DBE: 5, XID: nan})
	s.watch.Reads(now, 0, Reading{Reasons: 0x4, Pending: 0, DBE: 0, XID: nan}) // the driver was loaded anew
	s.watch.Name(0, "GPU-b", "")                                               // another board
	s.watch.Reads(now, 0, Reading{Reasons: nan, Pending: nan, DBE: 9, XID: nan})
	want := []string{
		"gpu.clocks_throttled HW_THERMAL_SLOWDOWN raised gpu0", "gpu.row_remap pending raised gpu0", "gpu.ecc_ue DRAM  gpu0",
		"gpu.clocks_throttled HW_THERMAL_SLOWDOWN cleared gpu0", "gpu.row_remap pending cleared gpu0",
	}
	if !slices.Equal(s.told, want) {
		t.Errorf("%q, want %q", s.told, want)
	}
}

// Who brings conditions of its own has one of a type at a time, whatever its code, and moments that are told apart.
func TestConditionsOfOtherReaders(t *testing.T) {
	now := time.Now()
	s := newStory(t)
	s.watch.Source = schemas.SourceDCGM
	s.watch.Name(2, "GPU-a", "")
	condition := func(code string, on bool) {
		s.watch.Condition(now, 2, schemas.EventGPUThermal, code, schemas.SeverityWarning, on, "heat", "RESET_GPU")
	}
	condition("A", true)
	condition("B", true)
	s.watch.ServerCondition(now, schemas.EventGPUHealth, "C", schemas.SeverityError, true, "a switch", "RESET_GPU")
	for _, detail := range []string{"1", "2"} {
		s.watch.Moment(now, 2, schemas.EventGPUPCIeReplay, "replay", schemas.SeverityWarning, "replays", "IGNORE", detail)
	}
	next := s.again(t)
	if got := next.watch.Holds(2); !slices.Equal(got, []string{schemas.EventGPUThermal}) {
		t.Errorf("holds %q", got)
	}
	if got := next.watch.ServerHolds(); !slices.Equal(got, []string{schemas.EventGPUHealth}) {
		t.Errorf("holds %q", got)
	}
	s = next
	condition("B", false)
	condition("A", false)
	want := []string{"gpu.thermal B cleared gpu2"}
	if !slices.Equal(s.told, want) {
		t.Errorf("%q, want %q", s.told, want)
	}
}

func TestAMemoryThatCannotBeReadIsForgotten(t *testing.T) {
	s := newStory(t)
	s.watch.Name(1, "GPU-a", "")
	if err := s.watch.UnmarshalText([]byte(`{"gpus":{"x":1}}`)); err == nil || len(s.watch.Boards()) != 0 {
		t.Error(err, s.watch.Boards())
	}
	if err := s.watch.UnmarshalText([]byte(`{"gpus":{"1":null}}`)); err != nil || len(s.watch.Boards()) != 1 {
		t.Error(err, s.watch.Boards())
	}
}
