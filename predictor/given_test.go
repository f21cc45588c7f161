package predictor

import (
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// limitsOf is what a device gives for a fan.
type limitsOf map[schemas.Bound]float64

// bench runs an engine over readings of one server.
type bench struct {
	t  *testing.T
	e  *engine
	at time.Duration
}

func newBench(t *testing.T, edit func(l *Limit)) *bench {
	t.Helper()
	limits, err := ReadLimits("")
	if err != nil {
		t.Fatal(err)
	}
	for i := range limits {
		if edit != nil {
			edit(&limits[i])
		}
	}
	return &bench{t: t, e: newEngine(DefaultConfig(), limits, placer{})}
}

// thresholds adds those of a fan to a batch of its readings.
func thresholds(b *auspexv1.Batch, part string, bounds limitsOf) *auspexv1.Batch {
	c := b.Samples
	sym := func(s string) uint32 {
		c.Symbols = append(c.Symbols, s)
		return uint32(len(c.Symbols) - 1)
	}
	for k, v := range bounds {
		c.Ref, c.Delta, c.Value = append(c.Ref, uint32(len(c.Series))), append(c.Delta, 0), append(c.Value, v)
		c.Series = append(c.Series, &auspexv1.Series{
			Metric: sym(schemas.ThresholdMetric("auspex_fan_speed_rpm")), PartKind: 2, Part: sym(part),
			Labels: []uint32{sym(schemas.LabelBound), sym(string(k))},
		})
	}
	return b
}

// wear lets fan 3 of eight lose speed from one value to another, while thresholds are said
// every two minutes.
func (b *bench) wear(collector string, from, to float64, over time.Duration, bounds limitsOf) {
	b.t.Helper()
	for end, begun := b.at+over, b.at; b.at < end; b.at += 10 * time.Second {
		rpm := make([]float64, 8)
		for i := range rpm {
			rpm[i] = 10000 + float64((int(b.at.Seconds())/10*7+i*13)%9)
		}
		rpm[2] = from + (to-from)*(b.at-begun).Seconds()/over.Seconds() + float64(int(b.at.Seconds())/10%4)
		batch := fans("s", collector, b.at, rpm...)
		if len(bounds) > 0 && (b.at-begun)%(2*time.Minute) == 0 {
			thresholds(batch, "fan3", bounds)
		}
		b.e.Batch(batch)
	}
}

// newest returns the newest state of the prediction of fan 3.
func (b *bench) newest() schemas.Prediction {
	var last schemas.Prediction
	for _, p := range b.e.changed {
		if p.Resource == "s/fan3" && !p.Time.Before(last.Time) {
			last = p
		}
	}
	return last
}

func TestLimitOfTheDeviceIsTakenOverOurs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		bounds limitsOf
		edit   func(*Limit)
		to     float64 // speed in the end; 3,000: from the start
		limit  float64 // of the prediction; 0: none
		source string
	}{
		{"a server fan that is fine at 3,000", limitsOf{schemas.LowerCritical: 480}, nil, 3000, 0, ""},
		{"and runs toward its own limit", limitsOf{schemas.LowerCritical: 2400}, nil, 3500, 2400, schemas.LimitOfDevice},
		{
			"the critical one of three",
			limitsOf{schemas.LowerCaution: 5500, schemas.LowerCritical: 2400, schemas.LowerFatal: 500},
			nil,
			3500, 2400, schemas.LimitOfDevice,
		},
		{"no critical one", limitsOf{schemas.LowerFatal: 2400, schemas.LowerCaution: 5500}, nil, 3500, 2400, schemas.LimitOfDevice},
		{"a caution alone", limitsOf{schemas.LowerCaution: 2400}, nil, 3500, 2400, schemas.LimitOfDevice},
		{
			"bounds of the other side and of the range are no limit",
			limitsOf{schemas.UpperCritical: 2400, schemas.RangeMin: 100},
			nil,
			7000, 6000, schemas.LimitDefault,
		},
		{"nothing given", nil, nil, 7000, 6000, schemas.LimitDefault},
		{"a site that fixes its own", limitsOf{schemas.LowerCritical: 480}, func(l *Limit) { l.Fixed = true }, 7000, 6000, schemas.LimitOfSite},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.edit)
			from := 10000.0
			if tc.to == 3000 {
				from = 3000
			}
			b.wear("ipmi", from, from, 3*time.Minute, tc.bounds)
			b.wear("ipmi", from, tc.to, 8*time.Minute, tc.bounds)
			p := b.newest()
			if tc.limit == 0 {
				if p.ID != "" || b.e.past[openKey{"s/fan3", "auspex_fan_speed_rpm"}] != nil {
					t.Fatalf("crossed, or said %q", p.Explanation)
				}
				return
			}
			if p.State != schemas.PredictionOpen || p.Limit != tc.limit || p.LimitSource != tc.source {
				t.Errorf("said %q: %s %g of %q", p.Explanation, p.State, p.Limit, p.LimitSource)
			}
		})
	}
}

func TestAnotherCollectorsLimitHoldsForTheSamePart(t *testing.T) {
	b := newBench(t, nil)
	b.wear("ipmi", 3000, 3000, time.Minute, limitsOf{schemas.LowerCritical: 480})
	b.wear("redfish", 3000, 3000, 8*time.Minute, nil)
	if p := b.newest(); p.ID != "" || len(b.e.past) > 0 {
		t.Errorf("crossed, or said %q, of a fan whose limit IPMI has", p.Explanation)
	}
}

func TestLimitThatTheDeviceTakesBackIsOurs(t *testing.T) {
	b := newBench(t, nil)
	b.wear("ipmi", 10000, 10000, time.Minute, limitsOf{schemas.LowerCritical: 480})
	b.wear("ipmi", 10000, 10000, forgotten, nil)
	b.wear("ipmi", 10000, 7000, 8*time.Minute, nil)
	if p := b.newest(); p.Limit != 6000 || p.LimitSource != schemas.LimitDefault {
		t.Errorf("said %q of %q", p.Explanation, p.LimitSource)
	}
}

func TestPredictionEndsWhenItsLimitMoves(t *testing.T) {
	b := newBench(t, nil)
	b.wear("ipmi", 10000, 7500, 6*time.Minute, nil)
	p := b.newest()
	if p.State != schemas.PredictionOpen || p.Limit != 6000 {
		t.Fatalf("said %q", p.Explanation)
	}
	b.wear("ipmi", 7500, 7500, time.Minute, limitsOf{schemas.LowerCritical: 480})
	if now := b.e.changed[p.ID]; now.State != schemas.PredictionExpired {
		t.Errorf("the prediction of a limit that is none is %s", now.State)
	}
}

// A process that begins again knows the device's limit before the device says it again.
func TestLimitOfTheDeviceOutlivesARestart(t *testing.T) {
	b := newBench(t, nil)
	limit := limitsOf{schemas.LowerCritical: 480}
	b.wear("ipmi", 4000, 4000, 5*time.Minute, limit)
	next := newBench(t, nil)
	next.at, next.e.saved = b.at+time.Hour, map[string][]byte{}
	for _, s := range b.e.states() {
		next.e.saved[s.id] = s.state
	}
	next.wear("ipmi", 4000, 4000, 90*time.Second, nil)
	if p := next.newest(); p.ID != "" || len(next.e.past) > 0 {
		t.Errorf("said %q after a restart", p.Explanation)
	}
}

// Lanes of a port share the bounds of their module.
func TestThresholdOfAPartHoldsForAllItsReadings(t *testing.T) {
	b := newBench(t, nil)
	at := func(d time.Duration, dbm float64, bounds bool) *auspexv1.Batch {
		c := &auspexv1.SampleColumns{
			Symbols: []string{
				"", "auspex_port_rx_power_dbm", "port", "Ethernet1", "lane", "0", "auspex_port_rx_power_dbm_threshold", "bound", "lower_critical",
			},
			Series: []*auspexv1.Series{{Metric: 1, PartKind: 2, Part: 3, Labels: []uint32{4, 5}}}, BaseTime: began.Add(d).UnixNano(),
			Ref: []uint32{0}, Delta: []int64{0}, Value: []float64{dbm},
		}
		if bounds {
			c.Series = append(c.Series, &auspexv1.Series{Metric: 6, PartKind: 2, Part: 3, Labels: []uint32{7, 8}})
			c.Ref, c.Delta, c.Value = append(c.Ref, 1), append(c.Delta, 0), append(c.Value, -14)
		}
		return &auspexv1.Batch{Device: "leaf", Collector: "gnmi", Samples: c}
	}
	for d := time.Duration(0); d < 30*time.Minute; d += 10 * time.Second {
		b.e.Batch(at(d, -3-8*d.Minutes()/30+0.01*float64(int(d.Seconds())%3), d%(2*time.Minute) == 0))
	}
	for _, p := range b.e.changed {
		if p.Limit != -14 || p.State != schemas.PredictionOpen {
			t.Errorf("%s: %s", p.State, p.Explanation)
		}
	}
	if len(b.e.changed) == 0 {
		t.Error("nothing said of a port that runs toward its module's alarm")
	}
	if n := len(b.e.devices[deviceKey{"leaf", "gnmi"}].all); n != 1 {
		t.Errorf("%d series followed, thresholds among them", n)
	}
}

// A fan that has no neighbours is held against the device's limit, or none.
func TestLoneFanNeedsTheDevicesLimit(t *testing.T) {
	for _, given := range []bool{false, true} {
		b := newBench(t, nil)
		for d := time.Duration(0); d < 10*time.Minute; d += 10 * time.Second {
			batch := fans("s", "ipmi", d, 9000-5*d.Seconds()+float64(int(d.Seconds())/10%4))
			if given {
				thresholds(batch, "fan1", limitsOf{schemas.LowerCritical: 4000})
			}
			b.e.Batch(batch)
		}
		n := 0
		for _, p := range b.e.changed {
			if n++; p.Limit != 4000 || p.LimitSource != schemas.LimitOfDevice {
				t.Errorf("said %q", p.Explanation)
			}
		}
		if (n > 0) != given {
			t.Errorf("%d predictions with a limit of the device: %v", n, given)
		}
	}
}
