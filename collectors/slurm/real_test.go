package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/slurm/slurmtest"
	"auspex/schemas"
)

// Each release, through each version of REST that it speaks and the one that is found.
func TestJobsAndNodesOfARealClusterAreTold(t *testing.T) {
	for _, c := range slurmtest.Clusters(t) {
		for _, version := range append(slices.Clone(c.Versions), "") {
			t.Run(c.Release+" "+version, func(t *testing.T) { testReal(t, c, version) })
		}
	}
}

func testReal(t *testing.T, c slurmtest.Cluster, version string) {
	const node = "gpu3"
	cfg := Default()
	cfg.URL, cfg.TokenFile, cfg.Timeout, cfg.Version = c.REST, c.TokenOf(t, "root"), time.Minute, version
	made, err := cfg.New(schemas.Resource{ID: "dc1", Kind: "site"}, collectors.Settings{Cursors: collectortest.NewCursors()})
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*collector).p
	t.Cleanup(p.client.Close)
	rec := collectortest.NewRecorder()
	told := func(want ...string) *schemas.Event {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; {
			if err := p.poll(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			for i, ev := range rec.Events() {
				if slices.Contains(want, strings.TrimSpace(ev.Resource+" "+ev.Type+" "+ev.Code)) {
					return &rec.Events()[i]
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q were not told: %q", want, events(rec))
			}
			time.Sleep(200 * time.Millisecond) // of a cluster that others ask too
		}
	}
	resume := func() {
		if strings.Contains(c.Run(t, "scontrol", "-o", "show", "node", node), "DRAIN") {
			c.Run(t, "scontrol", "update", "NodeName="+node, "State=RESUME")
		}
	}
	resume()
	t.Cleanup(resume)
	told(node + " node.state IDLE")
	id := c.Run(t, "sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null", "-w", node, "--gres=gpu:2", "--wrap=sleep 2; exit 3")
	ev := told(fmt.Sprintf("job-%s workload.state RUNNING", id))
	if ev.Attrs["owner"] != "root" || ev.Attrs["nodes"] != node || !strings.HasPrefix(ev.Attrs["gpus"], node+"/gpu") || strings.Count(ev.Attrs["gpus"], "/gpu") != 2 ||
		ev.Attrs["start"] == "" {
		t.Errorf("%+v", ev.Attrs)
	}
	ev = told(fmt.Sprintf("job-%s workload.failed 3", id))
	if ev.Attrs["end"] == "" || ev.Attrs["state"] != "FAILED" {
		t.Errorf("%+v", ev.Attrs)
	}
	c.Run(t, "scontrol", "update", "NodeName="+node, "State=DRAIN", "Reason=ann: a fan")
	if ev = told(node + " node.state DRAIN"); ev.Attrs["reason"] != "ann: a fan" {
		t.Errorf("%+v", ev.Attrs)
	}
}

// A reservation for maintenance, as scontrol makes it, is a window until it is deleted.
func TestAReservationOfARealClusterIsAWindow(t *testing.T) {
	for _, c := range slurmtest.Clusters(t) {
		for _, version := range c.Versions {
			t.Run(c.Release+" "+version, func(t *testing.T) { testReservation(t, c, version) })
		}
	}
}

func testReservation(t *testing.T, c slurmtest.Cluster, version string) {
	cfg := Default()
	cfg.URL, cfg.TokenFile, cfg.Timeout, cfg.Version = c.REST, c.TokenOf(t, "root"), time.Minute, version
	made, err := cfg.New(schemas.Resource{ID: "dc1", Kind: "site"}, collectors.Settings{Cursors: collectortest.NewCursors()})
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*collector).p
	t.Cleanup(p.client.Close)
	rec := collectortest.NewRecorder()
	name := "fans-" + strings.ReplaceAll(version, ".", "")
	told := func(typ string) (m schemas.Maintenance) { // of each of its nodes
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			if err := p.poll(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			var of []string
			for _, ev := range rec.Events() {
				if w, err := schemas.MaintenanceOf(&ev); ev.Type == typ && err == nil {
					m, of = w, append(of, ev.Resource)
				}
			}
			if slices.Equal(of, []string{"gpu1", "gpu2"}) {
				return m
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s was not told: %q", typ, events(rec))
			}
			time.Sleep(200 * time.Millisecond) // of a cluster that others ask too
		}
	}
	c.Run(t, "scontrol", "create", "reservation", "ReservationName="+name, "StartTime=now+60minutes", "Duration=30", "Nodes=gpu[1-2]", "Flags=MAINT,IGNORE_JOBS", "Users=root")
	deleted := false
	gone := func() {
		if !deleted {
			c.Run(t, "scontrol", "delete", "ReservationName="+name)
			deleted = true
		}
	}
	t.Cleanup(gone)
	m := told(schemas.EventMaintenanceDeclared)
	if m.Reason != "Slurm reservation "+name || m.By != "root" || m.Until.Sub(m.From) != 30*time.Minute || m.From.Before(time.Now()) {
		t.Errorf("%+v", m)
	}
	gone()
	told(schemas.EventMaintenanceEnded)
}
