package collectors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// seer reads servers or switches with an attribute and brings signs.
type seer struct {
	kind string
	e    Evidence
	made *[]string // the signs that each new collector was told are taken
}

func (c seer) Evidence() Evidence { return c.e }

func (c seer) Targets(rs []schemas.Resource) []schemas.Resource {
	if c.e.Attr == "" {
		return []schemas.Resource{{ID: "scheduler"}}
	}
	return With(rs, c.kind, c.e.Attr)
}

func (c seer) New(target schemas.Resource, s Settings) (Collector, error) {
	if c.made != nil {
		*c.made = append(*c.made, fmt.Sprint(target.ID, s.Taken))
	}
	return seen{}, nil
}

type seen struct{}

func (seen) Run(ctx context.Context, _ Emitter) error { <-ctx.Done(); return nil }

func TestACollectorIsToldAnewWhatAnotherTakesOver(t *testing.T) {
	var made []string
	gauge := seer{schemas.KindServer, Evidence{Signs: []Sign{SignGPU, SignXID}, Attr: "exporter", Yields: []Sign{SignXID}}, &made}
	log := seer{schemas.KindServer, Evidence{Signs: []Sign{SignXID}, Attr: "log"}, nil}
	configs := map[string]Config{"gauge": gauge}
	servers := []schemas.Resource{
		{ID: "a", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"exporter": "x", "log": "y"})},
		{ID: "b", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"exporter": "x"})},
	}
	r := NewRunner(DefaultRunnerConfig(), configs, nil, Settings{})
	step := func(want map[string]int) {
		t.Helper()
		made = nil
		if err := r.Reconcile(servers); err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, m := range made {
			got[m]++
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	step(map[string]int{"a[]": 1, "b[]": 1})
	both := maps.Clone(configs)
	both["log"] = log
	replace, err := r.Prepare(both, []string{"log"}, servers)
	if err != nil {
		t.Fatal(err)
	}
	replace()
	step(map[string]int{"a[XID]": 1})
	step(map[string]int{})
	servers[1].Attrs = schemas.AttrsOf(map[string]string{"exporter": "x", "log": "z"})
	step(map[string]int{"b[XID]": 1})
	if replace, err = r.Prepare(configs, []string{"log"}, servers); err != nil {
		t.Fatal(err)
	}
	replace()
	step(map[string]int{"a[]": 1, "b[]": 1})
}

func TestBlindSpotsNameSignServersAndReason(t *testing.T) {
	register := func(name string, kind string, e Evidence) Config {
		mu.Lock()
		registry[name] = func() Config { return seer{kind, e, nil} }
		mu.Unlock()
		t.Cleanup(func() { mu.Lock(); delete(registry, name); mu.Unlock() })
		return seer{kind, e, nil}
	}
	gauge := register(
		"t-gauge", schemas.KindServer,
		Evidence{Signs: []Sign{SignXID, SignGPU}, Attr: "exporter", Yields: []Sign{SignXID}, Partly: "the last one only"},
	)
	log := register("t-log", schemas.KindServer, Evidence{Signs: []Sign{SignXID, SignKernel}, Attr: "log"})
	register("t-bmc", schemas.KindServer, Evidence{Signs: []Sign{SignSEL, SignSensors}, Attr: "bmc"})
	ports := register("t-ports", schemas.KindSwitch, Evidence{Signs: []Sign{SignNetwork}, Attr: "gnmi"})
	jobs := register("t-jobs", "", Evidence{Signs: []Sign{SignJobs}})
	server := func(id string, attrs ...string) schemas.Resource {
		r := schemas.Resource{ID: id, Kind: schemas.KindServer}
		for _, a := range attrs {
			r.Attrs = r.Attrs.With(a, "x")
		}
		return r
	}
	top := schemas.Topology{
		Resources: []schemas.Resource{
			server("s1", "exporter", "log"), server("s2", "exporter"), server("s3"), server("s4", "log", "exporter"),
			server("s5", "log", "exporter"),
			{ID: "s1/nic0", Kind: schemas.KindNIC, Parent: "s1"},
			{ID: "leaf", Kind: schemas.KindSwitch, Attrs: schemas.AttrsOf(map[string]string{"gnmi": "x"})},
			{ID: "leaf/1", Kind: schemas.KindPort, Parent: "leaf"},
			{ID: "mute", Kind: schemas.KindSwitch},
			{ID: "mute/1", Kind: schemas.KindPort, Parent: "mute"},
		},
		Links: []schemas.Link{
			{From: "leaf/1", To: "s1/nic0", Kind: schemas.LinkNetwork},
			{From: "s2", To: "leaf/1", Kind: schemas.LinkNetwork},
			{From: "s3", To: "leaf", Kind: schemas.LinkNetwork},
			{From: "mute/1", To: "s4", Kind: schemas.LinkNetwork},
		},
	}
	var got []string
	for _, b := range BlindSpots(map[string]Config{"t-gauge": gauge, "t-log": log, "t-ports": ports, "t-jobs": jobs}, top) {
		got = append(got, b.String())
	}
	if got := Unread(map[string]Config{"t-gauge": gauge, "t-log": log, "t-ports": ports, "t-jobs": jobs}, top); !slices.Equal(got, []string{"s3"}) {
		t.Errorf("not read from inside: %v", got)
	}
	if got := Unread(map[string]Config{"t-log": log}, top); !slices.Equal(got, []string{"s2", "s3"}) {
		t.Errorf("not read from inside, with the log alone: %v", got)
	}
	want := []string{
		"1 server (s3): blind to XID: no attribute exporter for collectors.t-gauge; no attribute log for collectors.t-log",
		"1 server (s2): half blind to XID: the last one only",
		"2 servers (s2, s3): blind to kernel log: no attribute log for collectors.t-log",
		"1 server (s3): blind to GPU readings: no attribute exporter for collectors.t-gauge",
		"5 servers (s1, s2, s3 and 2 more): blind to SEL: collectors.t-bmc is not configured",
		"5 servers (s1, s2, s3 and 2 more): blind to sensors: collectors.t-bmc is not configured",
		"1 server (s4): blind to network: its switches have no attribute gnmi for collectors.t-ports",
		"1 server (s5): blind to network: no network link of the inventory joins it to a switch",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
