package slurm

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/drain"
	"auspex/internal/slurm"
	"auspex/internal/slurm/slurmtest"
)

// Each release through each version of REST that it speaks, the one that is found by itself, and scontrol alone.
func TestARealClusterIsDrainedAndGivenBack(t *testing.T) {
	for _, c := range slurmtest.Clusters(t) {
		command := &slurm.Scontrol{Command: c.Command("scontrol"), Timeout: time.Minute}
		rest := func(t *testing.T, version, user string) controller {
			client := slurm.New(slurm.Options{
				URL: c.REST, TokenFile: c.TokenOf(t, user), Version: version, Timeout: time.Minute, Scontrol: command,
			})
			t.Cleanup(client.Close)
			if newest := c.Versions[len(c.Versions)-1]; version == "" {
				if v, err := client.Version(t.Context()); err != nil || v != newest {
					t.Fatalf("it speaks %s, and %s was found, %v", newest, v, err)
				}
			}
			return client
		}
		for _, version := range append(slices.Clone(c.Versions), "") {
			t.Run(c.Release+" "+version, func(t *testing.T) {
				testDrain(t, c, rest(t, version, "root"))
				if len(c.Versions) > 1 { // 22.05 is changed through scontrol, by whoever runs it
					testRefusal(t, rest(t, version, "nobody"))
				}
			})
		}
		t.Run(c.Release+" scontrol", func(t *testing.T) { testDrain(t, c, command) })
	}
}

// Slurm restarts a node that we have drained, and our mark stays on it. The peer's RebootProgram starts nothing anew; the
// test has the node's slurmd start as one whose host has.
func TestARealClusterRestartsADrainedNode(t *testing.T) {
	const node = "gpu1"
	for _, c := range slurmtest.Clusters(t) {
		t.Run(c.Release, func(t *testing.T) {
			driver := &Config{URL: c.REST, TokenFile: c.TokenOf(t, "root"), Scontrol: c.Command("scontrol"), Reboot: true}
			settings := control.Settings{}
			all, err := driver.Remediators(settings)
			if err != nil {
				t.Fatal(err)
			}
			reliefs, err := driver.Reliefs(settings)
			if err != nil {
				t.Fatal(err)
			}
			all["reboot"] = reliefs["reboot"]
			verified := func(kind string, s control.Step) func() bool {
				return func() bool {
					v, _, err := all[kind].Verify(t.Context(), s)
					if err != nil {
						t.Fatal(err)
					}
					return v == control.Verified
				}
			}
			await := func(what string, holds func() bool) {
				t.Helper()
				for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) { // of a cluster that others ask too
					if time.Now().After(deadline) {
						t.Fatalf("%s: %s", what, c.Run(t, "scontrol", "-o", "show", "node", node))
					}
				}
			}
			step := func(id string) control.Step {
				return control.Step{ID: id, Server: node, Target: node, Reason: "gpu.ecc on gpu1/gpu2", Since: time.Now()}
			}
			back := step("act-4")
			resume := func() {
				if line := c.Run(t, "scontrol", "-o", "show", "node", node); strings.Contains(line, "DRAIN") || strings.Contains(line, "State=DOWN") {
					c.Run(t, "scontrol", "update", "NodeName="+node, "State=RESUME")
				}
			}
			resume()
			t.Cleanup(resume)
			await("it is at work before", verified("uncordon", back))
			if err := all["reboot"].Apply(t.Context(), step("act-1")); !errors.Is(err, control.ErrRejected) {
				t.Fatalf("a node at work: %v", err)
			}
			out := step("act-2")
			if err := all["drain"].Apply(t.Context(), out); err != nil {
				t.Fatal(err)
			}
			await("it is drained", verified("drain", out))
			again := step("act-3")
			again.Since = again.Since.Add(3 * time.Second) // the peer's hosts all started with this one
			time.Sleep(time.Until(again.Since))            // and what starts is told in whole seconds
			if verified("reboot", again)() {
				t.Error("it has started anew before anything was asked")
			}
			if err := all["reboot"].Apply(t.Context(), again); err != nil {
				t.Fatal(err)
			}
			await("Slurm restarts it", func() bool {
				return strings.Contains(c.Run(t, "scontrol", "-o", "show", "node", node), "REBOOT_ISSUED")
			})
			c.Restarted(t, node)
			await("it has started anew", verified("reboot", again))
			if !verified("drain", out)() {
				t.Error("the restart has given it back")
			}
			if line := c.Run(t, "scontrol", "-o", "show", "node", node); !strings.Contains(line, "Reason="+drain.Prefix+" act-3 gpu.ecc on gpu1/gpu2") {
				t.Error(line)
			}
			if err := all["uncordon"].Apply(t.Context(), back); err != nil {
				t.Fatal(err)
			}
			// slurmd -b tells its own start as that of its host, to the second: its next registration may look like another one.
			await("it is at work", func() bool {
				if strings.Contains(c.Run(t, "scontrol", "-o", "show", "node", node), "Node unexpectedly rebooted") {
					resume()
				}
				return verified("uncordon", back)()
			})
		})
	}
}

const node = "gpu2"

func testDrain(t *testing.T, c slurmtest.Cluster, through controller) {
	all := drain.Remediators(scheduler{through})
	step := control.Step{ID: "act-1", Kind: "drain", Server: node, Target: node, Reason: "gpu.fallen_off_bus on gpu2/gpu1", Since: time.Now()}
	resume := func() {
		if strings.Contains(c.Run(t, "scontrol", "-o", "show", "node", node), "DRAIN") {
			c.Run(t, "scontrol", "update", "NodeName="+node, "State=RESUME")
		}
	}
	resume()
	t.Cleanup(resume)
	var seen any
	verdict := func(kind string, want control.Verdict) bool {
		t.Helper()
		v, observed, err := all[kind].Verify(t.Context(), step)
		if err != nil {
			t.Fatal(err)
		}
		seen = observed.Args
		return v == want
	}
	await := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !holds(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v: %s", what, seen, c.Run(t, "scontrol", "-o", "show", "node", node))
			}
			time.Sleep(100 * time.Millisecond) // of a cluster that others ask too
		}
	}
	jobs := func() []string {
		t.Helper()
		list, err := all["drain"].(control.Scheduler).Jobs(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}

	await("the node is at work", func() bool { return verdict("uncordon", control.Verified) })
	if !verdict("drain", control.Pending) || len(jobs()) != 0 {
		t.Fatal("it is drained, or has jobs, before anything was asked")
	}
	id := c.Run(t, "sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null", "-w", node, "--wrap=sleep 600")
	await("the job runs", func() bool { return slices.Equal(jobs(), []string{"job-" + id + " of root"}) })
	if err := all["drain"].Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if line := c.Run(t, "scontrol", "-o", "show", "node", node); !strings.Contains(line, "Reason="+drain.Prefix+" act-1 gpu.fallen_off_bus on gpu2/gpu1") {
		t.Error(line)
	}
	if !verdict("drain", control.Pending) || !verdict("uncordon", control.Pending) {
		t.Error("a node with a job is drained, or at work")
	}
	c.Run(t, "scancel", id)
	await("it is drained", func() bool { return verdict("drain", control.Verified) })
	if err := all["uncordon"].Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	await("it is at work again", func() bool { return verdict("uncordon", control.Verified) && verdict("drain", control.Pending) })

	c.Run(t, "scontrol", "update", "NodeName="+node, "State=DRAIN", "Reason=ann: a fan")
	if err := all["drain"].Apply(t.Context(), step); !errors.Is(err, control.ErrAlready) {
		t.Errorf("a drain of somebody else: %v", err)
	}
	if err := all["uncordon"].Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) {
		t.Errorf("the end of a drain of somebody else: %v", err)
	}
	if line := c.Run(t, "scontrol", "-o", "show", "node", node); !strings.Contains(line, "DRAIN") || !strings.Contains(line, "Reason=ann: a fan") {
		t.Error(line)
	}

	step.Server = "gpu9"
	for _, kind := range []string{"drain", "uncordon"} {
		if err := all[kind].Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) || !errors.Is(err, slurm.ErrUnknownNode) {
			t.Errorf("%s of a node that is not known: %v", kind, err)
		}
		if _, _, err := all[kind].Verify(t.Context(), step); !errors.Is(err, control.ErrCannot) {
			t.Errorf("%s of a node that is not known: %v", kind, err)
		}
	}
}

// What may not be done was not done, for certain.
func testRefusal(t *testing.T, through controller) {
	step := control.Step{ID: "act-2", Kind: "drain", Server: "gpu3", Target: "gpu3"}
	if err := drain.Remediators(scheduler{through})["drain"].Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) {
		t.Errorf("a user who may not: %v", err)
	}
}
