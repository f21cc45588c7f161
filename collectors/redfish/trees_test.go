package redfish

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/internal/racetest"
)

// cost is what one machine costs and gives.
type cost struct {
	// Requests: of the first poll, of a steady one with readings and of one without.
	First, Round, Tick                                           int64
	Bytes                                                        int64 // KiB of a steady poll with readings
	Series                                                       int   // thresholds counted
	Temperatures, Margins, Fans, Powers, Voltages, Currents, PSU int
	Logs, Events                                                 int
}

func (c cost) String() string {
	return fmt.Sprintf("%d, %d and %d requests, %d KiB, %d series: %d temperatures, %d margins, %d fans, %d powers, %d voltages, "+
		"%d currents, %d of supplies; %d logs, %d events",
		c.First, c.Round, c.Tick, c.Bytes, c.Series, c.Temperatures, c.Margins, c.Fans, c.Powers, c.Voltages, c.Currents, c.PSU, c.Logs, c.Events)
}

// survey polls a machine until it is known, and once more.
func survey(t *testing.T, tree *redfishtest.Tree) (c cost, d *device, cpu time.Duration) {
	d = newDevice(t, tree)
	c.First = d.poll()
	for range 25 {
		d.poll()
	}
	bytes, began := tree.Bytes.Load(), userTime()
	c.Round = d.poll()
	cpu = userTime() - began
	c.Bytes = (tree.Bytes.Load() - bytes) >> 10
	d.now = d.now.Add(-20 * time.Second)
	c.Tick = d.poll()
	c.Logs, c.Events = len(d.r.found.logs), len(d.evs)
	for k := range d.got {
		c.Series++
		metric, _, _ := strings.Cut(k, " ")
		for suffix, n := range map[string]*int{
			"temperature_celsius": &c.Temperatures, "margin_celsius": &c.Margins, "power_watts": &c.Powers, "voltage_volts": &c.Voltages,
			"current_amperes": &c.Currents,
			"speed_rpm":       &c.Fans, "duty_ratio": &c.Fans, "psu_healthy": &c.PSU,
		} {
			if strings.HasSuffix(metric, suffix) {
				*n++
			}
		}
	}
	return c, d, cpu
}

func userTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano())
}

// What each recorded machine costs and gives, where it keeps its promise of $expand and where
// it does not.
func TestWhatRecordedMachinesCostAndGive(t *testing.T) {
	for _, x := range []struct {
		tree           string
		expands, plain cost
	}{
		{
			"r750",
			cost{
				First: 50, Round: 6, Tick: 4, Bytes: 60, Series: 145, Temperatures: 6, Fans: 6, Powers: 5, Voltages: 8, Currents: 2,
				PSU: 2, Logs: 3, Events: 10,
			},
			cost{
				First: 92, Round: 9, Tick: 4, Bytes: 44, Series: 145, Temperatures: 6, Fans: 6, Powers: 5, Voltages: 8, Currents: 2,
				PSU: 2, Logs: 3, Events: 10,
			},
		},
		{
			"gh200",
			cost{
				First: 48, Round: 9, Tick: 7, Bytes: 334, Series: 845, Temperatures: 26, Margins: 4, Fans: 16, Powers: 15, Voltages: 6,
				Logs: 7, Events: 15,
			},
			cost{
				First: 132, Round: 67, Tick: 7, Bytes: 35, Series: 829, Temperatures: 26, Margins: 4, Fans: 16, Powers: 15, Voltages: 6,
				Logs: 7, Events: 15,
			},
		},
		{
			"sr670",
			cost{
				First: 36, Round: 10, Tick: 6, Bytes: 168, Series: 368, Temperatures: 6, Margins: 2, Fans: 10, Powers: 14, Voltages: 8,
				PSU: 4, Logs: 5, Events: 90,
			},
			cost{
				First: 81, Round: 15, Tick: 6, Bytes: 32, Series: 364, Temperatures: 6, Margins: 2, Fans: 10, Powers: 14, Voltages: 8,
				PSU: 4, Logs: 5, Events: 90,
			},
		},
		{
			"dl380a",
			cost{
				First: 72, Round: 18, Tick: 5, Bytes: 35, Series: 180, Temperatures: 29, Fans: 6, Powers: 8, Voltages: 4, PSU: 4, Logs: 4,
				Events: 120,
			},
			cost{
				First: 81, Round: 18, Tick: 5, Bytes: 35, Series: 180, Temperatures: 29, Fans: 6, Powers: 8, Voltages: 4, PSU: 4, Logs: 4,
				Events: 120,
			},
		},
	} {
		for name, want := range map[string]cost{"expands": x.expands, "ignores $expand": x.plain} {
			t.Run(x.tree+" "+name, func(t *testing.T) {
				tree := openTree(t, "testdata/"+x.tree+"/input")
				if name != "expands" {
					tree.Ignores = []string{"$expand"}
				}
				got, _, cpu := survey(t, tree)
				t.Logf("%v; %v of processor time a round", got, cpu)
				if got != want {
					t.Errorf("%#v\nwant %#v", got, want)
				}
			})
		}
	}
}

// Where nothing is expanded each sensor is a request: within two minutes all of them have
// been read, at no time with more requests than are allowed, and then at the usual cost.
func TestAllSensorsAreReadWithinTwoMinutesWhereNothingIsExpanded(t *testing.T) {
	for _, machine := range []string{"gh200", "r750", "sr670", "dl380a"} {
		t.Run(machine, func(t *testing.T) {
			tree := openTree(t, "testdata/"+machine+"/input")
			tree.Ignores = []string{"$expand"}
			d := newDevice(t, tree)
			began := d.now
			d.poll() // it discovers, and begins
			learnt, most := time.Duration(0), int64(0)
			for learnt == 0 {
				d.now = d.now.Add(d.r.cfg.Interval - 30*time.Second) // which poll lets pass
				most = max(most, d.poll())
				if d.r.unknown(d.now) == nil {
					learnt = d.now.Sub(began) - 30*time.Second
				}
				if d.now.Sub(began) > time.Hour {
					t.Fatal("it never knows all")
				}
			}
			sensors := 0
			for _, s := range d.r.found.sources {
				if s.rank == rankSensor {
					sensors++
					if s.at.IsZero() {
						t.Errorf("%s was never read", s.path)
					}
				}
			}
			t.Logf("%d single sensors known after %s, at most %d requests a poll", sensors, learnt, most)
			if learnt > 2*time.Minute {
				t.Errorf("it took %s to know %d sensors", learnt, sensors)
			}
			if budget := int64(d.r.cfg.MaxRequests) + 20; most > budget { // beside the logs and the power state
				t.Errorf("%d requests in one poll, want at most %d", most, budget)
			}
		})
	}
}

// Whatever way a service has of showing what it has, the readings are the same.
func TestReadingsDoNotDependOnHowTheyAreShown(t *testing.T) {
	racetest.OneGoroutine(t)
	walk := func(v any, f func(map[string]any)) {
		var down func(any)
		down = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				f(v)
				for _, x := range v {
					down(x)
				}
			case []any:
				for _, x := range v {
					down(x)
				}
			}
		}
		down(v)
	}
	links := func(change func(string) string) func(*redfishtest.Tree) {
		return func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				walk(doc, func(o map[string]any) {
					if s, ok := o["@odata.id"].(string); ok && s != "" && !strings.Contains(s, "#") {
						o["@odata.id"] = change(s)
					}
				})
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for name, vary := range map[string]func(*redfishtest.Tree){
		"links with a slash at the end": links(func(s string) string { return s + "/" }),
		"links with the service's root": links(func(s string) string { return "/redfish/v1/../v1" + strings.TrimPrefix(s, "/redfish/v1") }),
		"collections in other orders": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				if m, ok := doc["Members"].([]any); ok {
					rng.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
				}
			}
		},
		"members twice": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				if m, ok := doc["Members"].([]any); ok {
					doc["Members"] = append(m, m...)
				}
			}
		},
		"pages of five":   func(tree *redfishtest.Tree) { tree.PageSize = 5 },
		"$expand ignored": func(tree *redfishtest.Tree) { tree.Ignores = []string{"$expand"} },
		"$expand unsaid":  func(tree *redfishtest.Tree) { tree.NoExpand = true },
		"$expand of every other": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				m, _ := doc["Members"].([]any)
				for i, x := range m {
					if o, ok := x.(map[string]any); ok && i%2 == 0 && o["@odata.id"] != nil {
						m[i] = map[string]any{"@odata.id": o["@odata.id"]}
					}
				}
			}
		},
		"numbers as text": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				walk(doc, func(o map[string]any) {
					if v, ok := o["Reading"].(float64); ok {
						o["Reading"] = fmt.Sprint(v)
					}
				})
			}
		},
		"properties of other types": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				walk(doc, func(o map[string]any) {
					for k, v := range map[string]any{"SensorNumber": "0x1F", "Links": []any{}, "Precision": "none", "Oem": 7.0, "Redundancy": "yes"} {
						if _, ok := o[k]; ok {
							o[k] = v
						}
					}
				})
			}
		},
		"collections whose next link is their own": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(path string, doc map[string]any) {
				if doc["Members"] != nil && !strings.HasSuffix(path, "/Entries") {
					doc["Members@odata.nextLink"] = path
				}
			}
		},
		"properties that are null": func(tree *redfishtest.Tree) {
			tree.Rewrite = func(_ string, doc map[string]any) {
				walk(doc, func(o map[string]any) {
					for _, k := range []string{"Oem", "Description", "Actions", "RelatedItem", "Location"} {
						if _, ok := o[k]; ok {
							o[k] = nil
						}
					}
				})
			}
		},
	} {
		for _, machine := range []string{"r750", "sr670", "dl380a"} {
			t.Run(machine+" "+name, func(t *testing.T) {
				// By metric and part: labels may be those of another place that shows the same.
				read := func(vary func(*redfishtest.Tree)) map[string]int {
					tree := openTree(t, "testdata/"+machine+"/input")
					if vary != nil {
						vary(tree)
					}
					d := newDevice(t, tree, func(c *Config) { c.MaxRequests = 2000 })
					for range 3 {
						d.poll()
					}
					out := make(map[string]int)
					for k := range d.readings() {
						what, sensor, ok := strings.Cut(k, " sensor=")
						if ok && sensor != "" {
							out[what]++
						}
					}
					return out
				}
				want, got := read(nil), read(vary)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("readings (-want +got):\n%s", diff)
				}
			})
		}
	}
}
