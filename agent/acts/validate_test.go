package acts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/gnoi/healthz"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/target"
)

// healthy are the readings of a GPU with nothing wrong, but for what is given.
func healthy(but map[string]float64) map[string]float64 {
	v := map[string]float64{
		"state/ecc-uncorrected": 0, "state/ecc-corrected": 0, "state/remap-pending": 0, "state/remap-failed": 0, "state/remap-banks-none": 0,
		"state/retired-pages-pending": 0, "state/inforom-corrupted": 0, "state/pcie-width": 16, "state/pcie-width-max": 16,
		"state/pcie-generation": 1, "state/pcie-generation-max": 5, "state/clocks-event-reasons": 1, "state/temperature": 40,
		"state/temperature-max-operating": 83, "state/temperature-slowdown": 87, "nvlink[link=0]/state/active": 1, "nvlink[link=1]/state/active": 1,
	}
	maps.Copy(v, but)
	return v
}

func TestWhatReadingsMean(t *testing.T) {
	for _, c := range []struct {
		name string
		but  map[string]float64
		want string
	}{
		{"nothing is wrong", nil, ""},
		{"errors of memory", map[string]float64{"state/ecc-uncorrected": 2, "state/ecc-corrected": 7}, "failed ecc-uncorrected uncorrected errors of memory since the driver was loaded: 2|warned ecc-corrected corrected errors of memory since the driver was loaded: 7"},
		{"rows that wait", map[string]float64{"state/remap-pending": 1}, "failed remap-pending rows of memory wait for a reset to be remapped: 1"},
		{"a row without a spare", map[string]float64{"state/remap-failed": 1}, "failed remap-failed a row of memory could not be remapped, and the board is to be exchanged: 1"},
		{"pages that wait", map[string]float64{"state/retired-pages-pending": 1}, "failed retired-pending pages of memory wait for a reset to be retired: 1"},
		{"an InfoROM", map[string]float64{"state/inforom-corrupted": 1}, "failed inforom the checksum of the InfoROM is wrong: 1"},
		{"the fabric", map[string]float64{"state/fabric-error": 999}, "failed fabric its registration in the NVLink fabric ended with an error of NVML: 999"},
		{"lanes", map[string]float64{"state/pcie-width": 8}, "failed pcie-width 8 of 16 lanes"},
		{"a link", map[string]float64{"nvlink[link=1]/state/active": 0}, "failed nvlink 1 links are up and 2 of another GPU; down: 1"},
		{"heat", map[string]float64{"state/temperature": 88}, "failed temperature 88 °C; it slows down at 87 °C"},
		{"warmth", map[string]float64{"state/temperature": 84}, "warned temperature 84 °C; it should not be above 83 °C"},
		{"the brake", map[string]float64{"state/clocks-event-reasons": 0x88}, "failed throttle the power brake of the server holds its clocks down"},
		{"its limit of power", map[string]float64{"state/clocks-event-reasons": 4}, ""},
	} {
		var bad []string
		for _, x := range judge(3, healthy(c.but), map[uint32]map[string]float64{3: healthy(c.but), 4: healthy(nil)}) {
			if x.Result != Passed {
				bad = append(bad, fmt.Sprintf("%s %s %s", x.Result, x.Name, x.Message))
			}
		}
		if got := strings.Join(bad, "|"); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := judge(1, map[string]float64{}, nil); len(got) != 0 {
		t.Errorf("of a board that tells nothing: %+v", got)
	}
	if got := judgeLinks(1, map[string]float64{"nvlink[link=0]/state/active": 0}, nil); len(got) != 0 {
		t.Errorf("of a board that is joined to nobody: %+v", got)
	}
}

func TestWhatAGPUCountsWhileItWorks(t *testing.T) {
	before := healthy(nil)
	warm := healthy(map[string]float64{"state/temperature": 80, "state/power": 690, "state/sm-clock": 1980, "state/pcie-generation": 5})
	for name, c := range map[string]struct {
		loaded []map[string]float64
		after  map[string]float64
		want   string
	}{
		"well":      {[]map[string]float64{warm}, before, ""},
		"an error":  {[]map[string]float64{warm}, healthy(map[string]float64{"state/ecc-uncorrected": 1}), "ecc-uncorrected-load: 1 while it worked"},
		"a row":     {nil, healthy(map[string]float64{"state/remap-pending": 1}), "remap-pending-load: 1 while it worked"},
		"slow PCIe": {[]map[string]float64{healthy(nil)}, before, "pcie-generation: generation 1 of 5"},
		"heat":      {[]map[string]float64{warm, healthy(map[string]float64{"state/temperature": 90, "state/clocks-event-reasons": 0x48, "state/pcie-generation": 5})}, before, "temperature-load: 90 °C; it slows down at 87 °C; gpu3: throttle-load: its hardware holds its clocks down for heat"},
	} {
		r := Report{Tests: judgeLoad(3, before, c.loaded, c.after)}
		if got := strings.TrimPrefix(r.String(), "failed: gpu3: "); c.want == "" != r.Sound() || c.want != "" && got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// lab has GPUs work as it is told.
type lab struct {
	tests []Test
	err   error
	block chan struct{}
	asked []string
}

func (l *lab) Compute(ctx context.Context, g GPU, _ Validation, busy func()) []Test {
	l.asked = append(l.asked, fmt.Sprintf("gpu%d", g.Number))
	busy()
	busy()
	if l.block != nil {
		select {
		case <-l.block:
		case <-ctx.Done():
		}
	}
	return l.tests
}

func (l *lab) Diagnose(_ context.Context, level int, numbers []uint32) (Report, error) {
	l.asked = append(l.asked, fmt.Sprint("level ", level, " of ", numbers))
	return Report{Tests: []Test{{Name: "dcgm.pcie", GPU: AllGPUs, Result: Passed}}}, l.err
}

// health serves validations of a server with two GPUs, of which nobody reads the second.
func health(t *testing.T, dir string, l *lab) (*Health, *target.Tree) {
	t.Helper()
	b := &bay{known: []uint32{0, 1}, values: map[uint32]map[string]float64{0: healthy(nil)}, open: map[uint32][]string{1: {"python (17)"}}}
	s, tree := service(t, dir, "b1", b), target.NewTree()
	reports, err := OpenReports(filepath.Join(dir, "validations.json"), tree)
	if err != nil {
		t.Fatal(err)
	}
	s.Hand.Reports = reports
	if l != nil {
		s.Hand.Computer, s.Hand.Diagnostics = l, l
	}
	return &Health{Service: s}, tree
}

func with(t *testing.T, pairs ...string) context.Context {
	t.Helper()
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
}

var allGPUs = &types.Path{Elem: []*types.PathElem{{Name: "gpus"}}}

func TestAValidationIsReportedOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	l := &lab{tests: []Test{{Name: "memory", GPU: 0, Result: Passed}}}
	h, _ := health(t, dir, l)
	ctx := with(t, target.MetaAction, "act-1", target.MetaLevel, "2")
	for range 2 {
		got, err := h.Check(ctx, &healthz.CheckRequest{Path: gpu(0)})
		if err != nil || got.GetStatus().GetStatus() != healthz.Status_STATUS_HEALTHY || got.GetStatus().GetId() != "act-1" {
			t.Fatal(got, err)
		}
		h, _ = health(t, dir, l) // the agent starts anew
	}
	if want := []string{"gpu0", "level 2 of [0]"}; !cmp.Equal(l.asked, want) {
		t.Error(cmp.Diff(want, l.asked))
	}
	if _, err := h.Check(with(t, target.MetaAction, "act-1", target.MetaLevel, "3"), &healthz.CheckRequest{Path: gpu(0)}); status.Code(err) != codes.AlreadyExists {
		t.Error(err)
	}
	// Level 1 disturbs nobody, and finds the GPU that is not read.
	got, err := h.Check(with(t, target.MetaAction, "act-2"), &healthz.CheckRequest{Path: allGPUs})
	if err != nil || got.GetStatus().GetStatus() != healthz.Status_STATUS_UNHEALTHY {
		t.Fatal(got, err)
	}
	var parts []string
	for _, c := range got.GetStatus().GetSubcomponents() {
		parts = append(parts, c.GetStatus().String())
	}
	if want := []string{"STATUS_HEALTHY", "STATUS_UNHEALTHY"}; !cmp.Equal(parts, want) {
		t.Error(cmp.Diff(want, parts))
	}
	to := &artifact{ctx: t.Context()}
	if err := h.Artifact(&healthz.ArtifactRequest{Id: "act-2"}, to); err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(to.bytes, &report); err != nil || report.String() != "failed: gpu1: driver: the GPU has fallen off the bus" {
		t.Errorf("%s: %v", &report, err)
	}
	if err := h.Artifact(&healthz.ArtifactRequest{Id: "act-3"}, to); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

// artifact takes what is streamed.
type artifact struct {
	grpc.ServerStream

	ctx   context.Context //nolint:containedctx // of a stream
	bytes []byte
}

func (a *artifact) Context() context.Context { return a.ctx }

func (a *artifact) Send(r *healthz.ArtifactResponse) error {
	a.bytes = append(a.bytes, r.GetBytes()...)
	return nil
}

func TestWhoMayValidateWhat(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		peer target.Peer
		meta []string
		req  *healthz.CheckRequest
		code codes.Code
		want string
	}{
		{"another", target.Peer{Name: "q", Known: true}, []string{target.MetaAction, "1"}, &healthz.CheckRequest{Path: gpu(0)}, codes.PermissionDenied, "allow.validate of the agent does not name it"},
		{"no id", target.Peer{Name: "p", Known: true}, nil, &healthz.CheckRequest{Path: gpu(0)}, codes.InvalidArgument, "auspex-action"},
		{"no such level", target.Peer{Name: "p", Known: true}, []string{target.MetaAction, "1", target.MetaLevel, "4"}, &healthz.CheckRequest{Path: gpu(0)}, codes.InvalidArgument, `level "4" is none of 1 to 3`},
		{"an event", target.Peer{Name: "p", Known: true}, []string{target.MetaAction, "1"}, &healthz.CheckRequest{Path: gpu(0), EventId: "7"}, codes.Unimplemented, "event_id"},
		{"what is no GPU", target.Peer{Name: "p", Known: true}, []string{target.MetaAction, "1"}, &healthz.CheckRequest{Path: &types.Path{Elem: []*types.PathElem{{Name: "fan"}}}}, codes.InvalidArgument, "is no GPU"},
		{"one in use", target.Peer{Name: "p", Known: true}, []string{target.MetaAction, "1", target.MetaLevel, "2"}, &healthz.CheckRequest{Path: allGPUs}, codes.FailedPrecondition, "gpu1 is in use by python (17)"},
	} {
		h, _ := health(t, dir, &lab{})
		h.Admit = func(context.Context) (target.Peer, error) { return c.peer, nil }
		if _, err := h.Check(with(t, c.meta...), c.req); status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		_, err := h.Get(with(t, append(c.meta, target.MetaWould, "1")...), &healthz.GetRequest{Path: c.req.GetPath()})
		if c.code == codes.PermissionDenied || c.code == codes.FailedPrecondition {
			if status.Code(err) != c.code {
				t.Errorf("%s would: %v", c.name, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "validations.json")); !errors.Is(err, os.ErrNotExist) {
		t.Error("something was validated")
	}
}

// Who cannot wait asks; a validation that runs has no result, and one that the agent left is unknown.
func TestAValidationIsAskedAfter(t *testing.T) {
	dir := t.TempDir()
	l := &lab{block: make(chan struct{})}
	h, _ := health(t, dir, l)
	ctx := with(t, target.MetaAction, "act-1", target.MetaLevel, "2")
	if _, err := h.Get(ctx, &healthz.GetRequest{Path: gpu(0)}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	done := make(chan error)
	go func() {
		_, err := h.Check(ctx, &healthz.CheckRequest{Path: gpu(0)})
		done <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) { // until it has begun
		if got, err := h.Get(ctx, &healthz.GetRequest{Path: gpu(0)}); err == nil {
			if got.GetComponent().GetStatus() != healthz.Status_STATUS_UNSPECIFIED || got.GetComponent().GetId() != "act-1" {
				t.Error(got)
			}
			break
		}
	}
	killed, _ := health(t, dir, l) // as if the agent had been killed here
	if _, err := killed.Get(ctx, &healthz.GetRequest{Path: gpu(0)}); status.Code(err) != codes.Unknown {
		t.Error(err)
	}
	close(l.block)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got, err := h.Get(ctx, &healthz.GetRequest{Path: gpu(0)}); err != nil || got.GetComponent().GetStatus() != healthz.Status_STATUS_HEALTHY {
		t.Error(got, err)
	}
}

// A report that cannot be kept is no report; one that cannot be read any more is forgotten, and said so.
func TestAReportThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	h, _ := health(t, dir, &lab{})
	h.Hand.Reports.path = filepath.Join(dir, "none", "validations.json")
	if _, err := h.Check(with(t, target.MetaAction, "act-1"), &healthz.CheckRequest{Path: gpu(0)}); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "cannot be kept") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "validations.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReports(filepath.Join(dir, "validations.json"), target.NewTree())
	if err == nil || r == nil {
		t.Error(r, err)
	}
}
