package backtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lifeTruth is what became of a metric between two services.
type lifeTruth struct {
	From                         time.Time
	Cross, Reset, Counterfactual *time.Time
}

type fleetTruth struct {
	Devices map[string]struct {
		Start, End time.Time
		KnownUntil time.Time `json:"known_until"`
		Metrics    map[string][]lifeTruth
	}
}

type foretold struct {
	Time          time.Time
	File, Metric  string
	Probability   float64
	P10, P50, P90 *time.Time
}

// figures are those of the forecasts of a fleet. A crossing counts as foretold where a
// prediction of at least one half stands 24 h before it. Such a prediction is a false
// alarm where no crossing comes within the horizon, and neither one nor the other where
// it comes within half a horizon more or where nobody knows; while it stands it is
// judged anew each horizon, and what is back within a day is the same alarm. What is
// left a day after a repair and gone by the next is the old alarm ending, not a new one.
type figures struct {
	crossings, foretold int
	falseAlarms         int
	deviceWeeks         float64
	covered, intervals  float64 // shares summed over crossings, of [p10, p90] in the last horizon before each
	unforetold          []string
}

func score(truth fleetTruth, predicted []foretold, horizon time.Duration) figures {
	const hour = time.Hour
	var f figures
	stood := map[string][]foretold{}
	for _, p := range predicted {
		stood[p.File+" "+p.Metric] = append(stood[p.File+" "+p.Metric], p)
	}
	for name, d := range truth.Devices {
		f.deviceWeeks += d.End.Sub(d.Start).Hours() / 168
		for metric, lives := range d.Metrics {
			list := stood[name+" "+metric]
			slices.SortStableFunc(list, func(a, b foretold) int { return a.Time.Compare(b.Time) })
			at := func(x time.Time) *foretold {
				i, _ := slices.BinarySearchFunc(list, x, func(p foretold, x time.Time) int {
					if p.Time.After(x) {
						return 1
					}
					return -1
				})
				if i == 0 {
					return nil
				}
				return &list[i-1]
			}
			on := func(x time.Time) bool { p := at(x); return p != nil && p.Probability >= 0.5 }
			for _, life := range lives {
				if !life.From.Before(d.End) {
					continue
				}
				first := life.From.Add(24 * hour)
				if !life.From.After(d.Start) {
					first = life.From.Add(48 * hour)
				}
				stop := d.End
				for _, x := range []*time.Time{life.Cross, life.Reset} {
					if x != nil && x.Before(stop) {
						stop = *x
					}
				}
				if c := life.Cross; c != nil && !c.After(d.End) && c.Sub(d.Start) >= 72*hour && c.Sub(first) >= 24*hour {
					f.crossings++
					if on(c.Add(-24 * hour)) {
						f.foretold++
					} else {
						f.unforetold = append(f.unforetold, name+" "+metric)
					}
					n, in := 0.0, 0.0
					begin := c.Add(-horizon)
					if begin.Before(first) {
						begin = first
					}
					for x := begin; !x.After(c.Add(-6 * hour)); x = x.Add(6 * hour) {
						if p := at(x); p != nil && p.Probability >= 0.5 && p.P10 != nil && p.P90 != nil {
							n++
							if !p.P10.After(*c) && !p.P90.Before(*c) {
								in++
							}
						}
					}
					if n > 0 {
						f.intervals++
						f.covered += in / n
					}
				}
				future := life.Cross
				if future == nil {
					future = life.Counterfactual
				}
				f.falseAlarms += falseAlarms(list, on, first, stop, horizon, func(x time.Time) bool {
					switch {
					case life.From.After(d.Start) && x.Equal(first) && !on(x.Add(24*hour)):
						return false
					case future != nil:
						return future.After(x.Add(horizon + horizon/2))
					default:
						return !d.KnownUntil.Before(x.Add(horizon))
					}
				})
			}
		}
	}
	return f
}

// falseAlarms looks each six hours, and wherever a prediction changes.
func falseAlarms(
	list []foretold, on func(time.Time) bool, first, stop time.Time, horizon time.Duration, wrong func(time.Time) bool,
) (n int) {
	var readings []time.Time
	for x := first; x.Before(stop); x = x.Add(6 * time.Hour) {
		readings = append(readings, x)
	}
	for _, p := range list {
		if !p.Time.Before(first) && p.Time.Before(stop) {
			readings = append(readings, p.Time)
		}
	}
	slices.SortFunc(readings, time.Time.Compare)
	var counted, ended time.Time
	standing := false
	for _, x := range readings {
		if !on(x) {
			if standing {
				standing, ended = false, x
			}
			continue
		}
		fresh := !standing && x.Sub(ended) > 24*time.Hour
		standing = true
		if fresh || x.Sub(counted) >= horizon {
			counted = x
			if wrong(x) {
				n++
			}
		}
	}
	return n
}

// A part of the developers' fleet: 9 crossings on 12 nodes. Over the whole of it (96
// nodes, 35 crossings) the follower has foretold 33 (.94) a day ahead at 8 false alarms
// in 617 device-weeks (13 per 1,000), and a robust slope .49 at 47 per 1,000. On the part it foretells all, with no false
// alarm; the bounds leave room for one crossing and two alarms (26 per 1,000), and .18 of
// coverage.
func TestForecastsHoldTheirFigures(t *testing.T) {
	const folder, horizon = "testdata/degradation", 168 * time.Hour
	var truth fleetTruth
	b, err := os.ReadFile(filepath.Join(folder, "truth.json"))
	if err == nil {
		err = json.Unmarshal(b, &truth)
	}
	if err != nil || len(truth.Devices) != 12 {
		t.Fatalf("%d devices, %v", len(truth.Devices), err)
	}
	var out, errw bytes.Buffer
	o := ForecastOptions{Data: folder, Limits: filepath.Join(folder, "limits.json"), Out: "-", Horizon: horizon}
	if err := Forecast(t.Context(), o, nil, &out, &errw); err != nil {
		t.Fatal(err)
	}
	var predicted []foretold
	for dec := json.NewDecoder(&out); dec.More(); {
		var p struct {
			foretold
			P10 *time.Time `json:"eta_p10"`
			P50 *time.Time `json:"eta_p50"`
			P90 *time.Time `json:"eta_p90"`
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.foretold.P10, p.foretold.P50, p.foretold.P90 = p.P10, p.P50, p.P90
		p.File = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(p.File), ".gz"), ".csv")
		predicted = append(predicted, p.foretold)
	}
	f := score(truth, predicted, horizon)
	share, rate := float64(f.foretold)/float64(f.crossings), 1000*float64(f.falseAlarms)/f.deviceWeeks
	t.Logf("%d of %d crossings a day ahead, %d false alarms in %.0f device-weeks (%.0f per 1,000), coverage of p10 to p90 %.2f, not foretold: %v",
		f.foretold, f.crossings, f.falseAlarms, f.deviceWeeks, rate, f.covered/f.intervals, f.unforetold)
	if f.crossings != 9 || share < 0.85 {
		t.Errorf("%d of %d crossings were foretold a day ahead; not: %v", f.foretold, f.crossings, f.unforetold)
	}
	if rate > 30 {
		t.Errorf("%.0f false alarms per 1,000 device-weeks, want at most 30", rate)
	}
	if covered := f.covered / f.intervals; covered < 0.6 {
		t.Errorf("%.2f of the crossings lie between p10 and p90, want at least .60", covered)
	}
}

func TestFiguresCountWhatTheySay(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := func(n float64) time.Time { return start.Add(time.Duration(n * 24 * float64(time.Hour))) }
	cross, early, late := day(20), day(19.5), day(20.5)
	var truth fleetTruth
	if err := json.Unmarshal([]byte(`{"devices": {"d": {"start": "2026-01-01T00:00:00Z", "end": "2026-02-10T00:00:00Z", "known_until": "2026-02-20T00:00:00Z",
		"metrics": {"a": [{"from": "2026-01-01T00:00:00Z", "cross": "2026-01-21T00:00:00Z"}], "b": [{"from": "2026-01-01T00:00:00Z", "reset": "2026-01-20T00:00:00Z"}, {"from": "2026-01-20T00:00:00Z"}]}}}}`), &truth); err != nil {
		t.Fatal(err)
	}
	alarm := func(at float64, metric string, p float64) foretold {
		return foretold{Time: day(at), File: "d", Metric: metric, Probability: p, P10: &early, P50: &cross, P90: &late}
	}
	for _, tc := range []struct {
		name                  string
		predicted             []foretold
		foretold, falseAlarms int
		covered               float64
	}{
		{"nothing", nil, 0, 0, 0},
		{"in time", []foretold{alarm(15, "a", 0.9)}, 1, 0, 1},
		{"too late", []foretold{alarm(19.5, "a", 0.9)}, 0, 0, 1},
		{"taken back", []foretold{alarm(15, "a", 0.9), alarm(18, "a", 0.1)}, 0, 0, 1},
		{"too early to be right", []foretold{alarm(5, "a", 0.9), alarm(6, "a", 0.1)}, 0, 1, 0},
		{"of what never came, for three weeks", []foretold{alarm(5, "b", 0.9), alarm(25, "b", 0.1)}, 0, 3, 0},
		{"gone within a day after the repair", []foretold{alarm(18.5, "b", 0.9), alarm(20.5, "b", 0.1)}, 0, 1, 0},
		{"that outlives the repair", []foretold{alarm(18.5, "b", 0.9), alarm(21.5, "b", 0.1)}, 0, 2, 0},
		{"flapping", []foretold{alarm(5, "b", 0.9), alarm(5.2, "b", 0.1), alarm(5.5, "b", 0.9), alarm(6, "b", 0.1)}, 0, 1, 0},
	} {
		f := score(truth, tc.predicted, 168*time.Hour)
		if f.crossings != 1 || f.foretold != tc.foretold || f.falseAlarms != tc.falseAlarms || f.covered != tc.covered {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}
