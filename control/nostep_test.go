package control

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/store/records"
	"auspex/schemas"
)

// TestAnIncidentWithoutAStepSaysWhy has incidents that nothing is done about, each for another reason, and reads what the
// API will say of them, before a restart and after it.
func TestAnIncidentWithoutAStepSaysWhy(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.ReplaceAll(policyText, "    faults: [gpu.memory_uncorrectable]\n", "    faults: [gpu.memory_uncorrectable]\n    settle: 1h\n"))
	b.w.dead["gpu-r02-01"] = true
	unsure := incident("unsure", "gpu-r03-01/gpu1", "gpu.fallen_off_bus")
	unsure.RootCause.Confidence = .4
	all := []schemas.Incident{
		incident("nobody", "sw-1", "switch.reboot"), unsure, incident("settles", "gpu-r04-01/gpu1", "gpu.memory_uncorrectable"),
		incident("failed", "gpu-r02-01/gpu2", "gpu.fallen_off_bus"), incident("cured", "gpu-r05-01/gpu2", "gpu.fallen_off_bus"),
	}
	want := map[string]string{
		"nobody": "no policy is for switch.reboot", "unsure": "the cause is 40 % sure, and policy gpu asks for 50 %",
		"settles": "policy memory waits until the cause has stood for 1h0m0s; it stands since ",
		"failed":  "the ladder of policy gpu has ended: failed", "cured": "the ladder of policy gpu has ended: done",
	}
	check := func(c *Controller) error {
		c.report(t.Context())
		got, err := records.New(b.db).NoSteps(t.Context())
		if err != nil {
			return err
		}
		for id, text := range want {
			if w := got[id]; !strings.HasPrefix(w.Reason, text) || (w.Policy == "") != (id == "nobody") {
				return fmt.Errorf("%s: %+v", id, w)
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	}
	c := b.controller()
	for _, i := range all {
		c.consider(i)
	}
	b.until(c, func([]schemas.Action) bool { return check(c) == nil }, all...)
	// While the server of a ladder that failed is out, that ladder has it.
	want["later"] = "another ladder has gpu-r02-01, for incident failed"
	later := incident("later", "gpu-r02-01/gpu3", "gpu.fallen_off_bus")
	again := b.controller()
	again.consider(later)
	b.until(again, func([]schemas.Action) bool { return check(again) == nil }, later)
	n := &candidate{inc: incident("x", "gpu-r09-01/gpu1", "gpu.fallen_off_bus"), rests: true, settled: time.Now().Add(-time.Hour)}
	if _, why := c.noStep(n, time.Now()); why.ID != "no_step.rests" {
		t.Errorf("%+v", why)
	}
}
