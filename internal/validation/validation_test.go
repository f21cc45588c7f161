package validation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/store/validations"
	"auspex/internal/validation"
	"auspex/schemas"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func of(name, part, expected, seen, verdict, source string) schemas.ValidationCheck {
	return schemas.ValidationCheck{Name: name, Part: part, Expected: expected, Seen: seen, Verdict: verdict, Source: source}
}

// checks are those of a world, without their words.
func checks(w *validation.World) (out []schemas.ValidationCheck) {
	for _, c := range validation.Checks("s1", w, now) {
		c.Detail, c.Fleet = "", false
		out = append(out, c)
	}
	return out
}

func TestAServerIsHeldAgainstTheWorldAndTheFleet(t *testing.T) {
	memory, answered := 80.0, 1
	w := &validation.World{
		Answered: &answered,
		GPUs:     []schemas.GPU{{Name: "s1/gpu0", Model: "H100", MemoryGB: &memory, DriverVersion: "570.10"}, {Name: "s1/gpu1", Model: "H100"}},
		Parts: []schemas.Resource{
			{ID: "s1/gpu0", Kind: schemas.KindGPU},
			{ID: "s1/gpu1", Kind: schemas.KindGPU},
			{ID: "s1/fan1", Kind: schemas.KindFan},
			{ID: "s1/fan2", Kind: schemas.KindFan},
			{ID: "s1/nic0", Kind: schemas.KindNIC},
			{ID: "s1/nic1", Kind: schemas.KindNIC},
			{ID: "s1/nic2", Kind: schemas.KindNIC},
			{ID: "s1/nic3", Kind: schemas.KindNIC},
		},
		Fleet: validations.Fleet{
			GPUs: map[string]int{"2": 9, "1": 1}, Drivers: map[string]map[string]int{"H100": {"575.51": 15, "570.10": 3}}, Memory: map[string]map[string]int{"H100": {"80.0": 18}},
		},
		Read: map[string]time.Time{"s1/gpu0": now.Add(-time.Minute), "s1/fan1": now.Add(-10 * time.Minute), "s1/nic0": now, "s1/nic1": now, "s1/nic2": now},
		Values: map[string]map[string]float64{
			"s1/nic0": {validation.NICUp: 1, validation.NICSpeed: 400e9}, "s1/nic1": {validation.NICUp: 1, validation.NICSpeed: 100e9}, "s1/nic2": {validation.NICUp: 0},
		},
		Speeds: map[string][]float64{"nic0": {400e9, 400e9}, "nic1": {400e9, 400e9, 100e9}},
	}
	const within = "read within 5m0s"
	recent, old := "2026-03-01T11:59:00Z", "2026-03-01T11:50:00Z"
	want := []schemas.ValidationCheck{
		of("gpu_count", "", "2", "1", schemas.CheckFailed, schemas.SeenByAgent), of("gpu_count", "", "2", "2", schemas.CheckPassed, schemas.SeenByInventory),
		of("memory", "s1/gpu0", "80 GB", "80 GB", schemas.CheckPassed, schemas.SeenByInventory),
		of("driver_version", "s1/gpu0", "575.51", "570.10", schemas.CheckWarned, schemas.SeenByInventory),
		of("memory", "s1/gpu1", "80 GB", "", schemas.CheckNotSeen, schemas.SeenByInventory),
		of("driver_version", "s1/gpu1", "575.51", "", schemas.CheckNotSeen, schemas.SeenByInventory),
		of("telemetry", "s1/gpu0", within, recent, schemas.CheckPassed, schemas.SeenByTelemetry), of("telemetry", "s1/gpu1", within, "", schemas.CheckFailed, schemas.SeenByTelemetry),
		of("telemetry", "s1/fan1", within, old, schemas.CheckFailed, schemas.SeenByTelemetry), of("telemetry", "s1/fan2", within, "", schemas.CheckNotSeen, schemas.SeenByTelemetry),
		of("telemetry", "s1/nic0", within, "2026-03-01T12:00:00Z", schemas.CheckPassed, schemas.SeenByTelemetry), of("telemetry", "s1/nic1", within, "2026-03-01T12:00:00Z", schemas.CheckPassed, schemas.SeenByTelemetry),
		of("telemetry", "s1/nic2", within, "2026-03-01T12:00:00Z", schemas.CheckPassed, schemas.SeenByTelemetry), of("telemetry", "s1/nic3", within, "", schemas.CheckNotSeen, schemas.SeenByTelemetry),
		of("link", "s1/nic0", "up", "up", schemas.CheckPassed, schemas.SeenByTelemetry), of("link_speed", "s1/nic0", "400 Gbit/s", "400 Gbit/s", schemas.CheckPassed, schemas.SeenByTelemetry),
		of("link", "s1/nic1", "up", "up", schemas.CheckPassed, schemas.SeenByTelemetry), of("link_speed", "s1/nic1", "400 Gbit/s", "100 Gbit/s", schemas.CheckFailed, schemas.SeenByTelemetry),
		of("link", "s1/nic2", "up", "down", schemas.CheckWarned, schemas.SeenByTelemetry), of("link", "s1/nic3", "up", "", schemas.CheckNotSeen, schemas.SeenByTelemetry),
	}
	if d := cmp.Diff(want, checks(w)); d != "" {
		t.Error(d)
	}
}

// Where nothing is known nothing is passed: a site without telemetry, without others of the model, or where half of them differ.
func TestWhatNobodyTellsIsNeverPassed(t *testing.T) {
	memory := 80.0
	w := &validation.World{
		GPUs:  []schemas.GPU{{Name: "s1/gpu0", Model: "H100", MemoryGB: &memory, DriverVersion: "570.10"}},
		Parts: []schemas.Resource{{ID: "s1/gpu0", Kind: schemas.KindGPU}, {ID: "s1/nic0", Kind: schemas.KindNIC}},
		Fleet: validations.Fleet{Drivers: map[string]map[string]int{"H100": {"570.10": 2, "575.51": 2}}},
	}
	all := checks(w)
	if len(all) < 6 {
		t.Error(all)
	}
	for _, c := range all {
		if c.Verdict != schemas.CheckNotSeen {
			t.Errorf("%+v", c)
		}
	}
	if got := schemas.Worst(all); got != schemas.CheckNotSeen {
		t.Error(got)
	}
}
