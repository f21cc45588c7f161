package trend

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const quarter = 15 * time.Minute

// rig is a fan whose controller answers jobs and the room's air, as read every
// quarter of an hour: its duty, and then power, inlet, a counter, and the speed
// that its duty gives.
type rig struct {
	rng         *rand.Rand
	power, left float64
	count       float64
}

func newRig(seed uint64) *rig { return &rig{rng: rand.New(rand.NewPCG(seed, 7)), count: 1e6} }

func (r *rig) read(at time.Duration, wear float64) (duty float64, others []float64) {
	if r.left--; r.left < 0 { // another job, or none, for hours or days
		r.left = 24 + 150*r.rng.Float64()
		r.power = 320 + 280*r.rng.Float64()
		if r.rng.Float64() < 0.15 {
			r.left, r.power = 20, 90
		}
	}
	power := r.power + 12*r.rng.NormFloat64()
	inlet := 22 + 2*math.Sin(at.Hours()/24*2*math.Pi) + 0.2*r.rng.NormFloat64()
	r.count += power
	duty = math.Round(min(100, max(25, (1+wear)*(0.1*power+inlet-24)+0.5*r.rng.NormFloat64())))
	return duty, []float64{math.Round(power), math.Round(inlet*2) / 2, r.count, 120*duty + 20*r.rng.NormFloat64()}
}

var duties = Config{MaxWidth: 6 * time.Hour}

const (
	dutyLimit = 95
	week      = 168 * time.Hour
)

// follow follows a series that must not rise above limit, a week ahead.
func follow(limit float64, drivers int) *Follower {
	return NewFollower(&Target{Limit: limit, Horizon: week, Drivers: drivers})
}

// TestWearIsSeenBehindTheLoad lets a fan clog over two weeks while jobs come and
// go: the duty alone moves more with the jobs than with the dust.
func TestWearIsSeenBehindTheLoad(t *testing.T) {
	early, alone := 0, 0
	const seeds = 8
	for seed := uint64(1); seed <= seeds; seed++ {
		r, raw := newRig(seed), New(duties)
		var reporter Reporter
		f := follow(dutyLimit, 4)
		over := 0
		type standing struct {
			at          time.Duration
			with, alone bool
		}
		var published []standing
		var crossed time.Duration
		for at := time.Duration(0); at < 40*24*time.Hour; at += quarter {
			days := at.Hours() / 24
			duty, others := r.read(at, math.Expm1(max(0, days-14)/14))
			if over++; duty <= dutyLimit {
				over = 0
			}
			if over == 3 {
				crossed = at
				break
			}
			f.Add(Reading{At: start.Add(at), V: duty, Others: others})
			if raw.Add(start.Add(at), duty) {
				if g, ok := raw.Forecast(dutyLimit, week); ok {
					reporter.Report(g)
				}
			}
			published = append(published, standing{at, f.Alarmed(), reporter.Alarmed()})
			if f.Alarmed() && days > 4 && days < 14 {
				t.Errorf("seed %d: alarm on day %.1f, before the dust", seed, days)
				break
			}
		}
		if crossed == 0 {
			t.Fatalf("seed %d: never crossed", seed)
		}
		for _, s := range published {
			if s.at == crossed-24*time.Hour {
				if s.with {
					early++
				}
				if s.alone {
					alone++
				}
			}
		}
	}
	t.Logf("foretold a day ahead: %d of %d under the usual load, %d from the duty alone", early, seeds, alone)
	if early < 7 || early <= alone {
		t.Errorf("foretold a day ahead: %d of %d, %d from the duty alone", early, seeds, alone)
	}
}

func TestLoadIsNoWear(t *testing.T) {
	for seed := uint64(20); seed < 26; seed++ {
		r := newRig(seed)
		f := follow(dutyLimit, 4)
		for at := time.Duration(0); at < 45*24*time.Hour; at += quarter {
			duty, others := r.read(at, 0.15) // the highest jobs come near the limit
			if now, change := f.Add(Reading{At: start.Add(at), V: duty, Others: others}); change >= Material && f.Alarmed() && at > 5*24*time.Hour {
				t.Errorf("seed %d day %.1f: alarm of a healthy fan, probability %.2f", seed, at.Hours()/24, now.Probability)
				break
			}
		}
	}
}

func TestWhatDrivesASeries(t *testing.T) {
	r := newRig(3)
	d := NewDrivers(duties, 4)
	for at := time.Duration(0); at < 10*24*time.Hour; at += quarter {
		duty, others := r.read(at, 0)
		d.Add(start.Add(at), duty, others)
	}
	d.fit()
	if !d.engaged() {
		t.Fatal("the load does not explain the duty")
	}
	for j, want := range []bool{true, true, false, false} {
		if d.By[j] != want {
			t.Errorf("metric %d (power, inlet, a counter, the fan's speed) drives it: %v, want %v", j, d.By[j], want)
		}
	}
	for at := 10 * 24 * time.Hour; at < 20*24*time.Hour; at += quarter {
		duty, others := r.read(at, math.Expm1((at.Hours()-240)/300))
		others[3] = 6000 // by now it tells no more what the duty tells
		d.Add(start.Add(at), duty, others)
		d.fit()
	}
	if d.By[3] {
		t.Error("what fails with the part has become a driver")
	}
}

func TestSeriesWithoutDriversStandsAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	s, f := New(duties), follow(80, 2)
	for at := time.Duration(0); at < 12*24*time.Hour; at += quarter {
		v := 40 + at.Hours()/9 + rng.NormFloat64()
		others := []float64{rng.NormFloat64(), math.NaN()}
		now, change := f.Add(Reading{At: start.Add(at), V: v, Others: others})
		if !s.Add(start.Add(at), v) {
			continue
		}
		alone, ok := s.Forecast(80, week)
		if change >= Material && ok && at > 5*24*time.Hour && alone.Probability > 0.6 && now.Probability != alone.Probability {
			t.Fatalf("at %s: %.3f, alone %.3f", at, now.Probability, alone.Probability)
		}
	}
	if !f.Alarmed() {
		t.Error("no alarm")
	}
}

// TestAlarmEndsWithTheExchange lets a rate that is counted over a day pass its
// limit and fall to nothing after an exchange.
func TestAlarmEndsWithTheExchange(t *testing.T) {
	f := follow(7, 0)
	const crossed, changed = 14 * 24 * time.Hour, 15 * 24 * time.Hour
	for at := time.Duration(0); at <= changed+30*time.Hour; at += quarter {
		v := 7 * math.Exp((at-crossed).Hours()/60)
		if at > changed {
			v = 7 * math.Exp((changed-crossed).Hours()/60) * max(0, 1-(at-changed).Hours()/24)
		}
		f.Add(Reading{At: start.Add(at), V: v, Others: nil})
		if at == changed && !f.Alarmed() {
			t.Error("no alarm while it is beyond the limit")
		}
		if at > changed+24*time.Hour && f.Alarmed() {
			t.Fatalf("alarm %s after the exchange", at-changed)
		}
	}
}

// TestWantOfLoadIsNoExchange gives a clogged fan a light job after it has crossed.
func TestWantOfLoadIsNoExchange(t *testing.T) {
	r := newRig(11)
	f := follow(dutyLimit, 4)
	for at := time.Duration(0); at < 24*24*time.Hour; at += quarter {
		days := at.Hours() / 24
		switch {
		case days > 22 && days < 23:
			r.power, r.left = 330, 1
		case days > 20:
			r.power, r.left = 590, 1
		}
		duty, others := r.read(at, min(1, max(0, (days-10)/8)))
		f.Add(Reading{At: start.Add(at), V: duty, Others: others})
		if (days > 21 && days < 22 || days > 23.5) && !f.Alarmed() {
			t.Fatalf("day %.1f: no alarm while the duty is %.0f", days, duty)
		}
	}
}

// cooled is what a GPU reads that is held at 72 degrees by a fan which has to give
// the demand, in percent.
func cooled(demand, noise float64) float64 {
	if demand < 25 {
		return math.Round(22 + 2*demand*max(0, min(1, demand/25)) + noise)
	}
	return math.Round(22 + 50*max(1, demand/100) + noise)
}

// TestHeldTemperatureIsForetoldByItsFan lets a fan clog whose controller keeps the
// temperature where it was until the fan can do no more, hours before the limit.
func TestHeldTemperatureIsForetoldByItsFan(t *testing.T) {
	const seeds = 6
	early, alone := 0, 0
	for seed := uint64(1); seed <= seeds; seed++ {
		for _, clogs := range []bool{true, false} {
			r := newRig(seed)
			duty, temp, single := follow(dutyLimit, 3), follow(86, 3), follow(86, 3)
			temp.Beside(duty)
			duty.Beside(temp)
			var with, without []bool
			over := 0
			for at := time.Duration(0); at < 40*24*time.Hour && over < 2; at += quarter {
				wear := 0.0
				if clogs {
					wear = math.Expm1(max(0, at.Hours()/24-14) / 14)
				}
				_, others := r.read(at, wear)
				demand := (1 + wear) * (0.1*others[0] + others[1] - 24 + r.rng.NormFloat64())
				reading := Reading{At: start.Add(at), V: math.Round(min(100, max(25, demand))), Others: others[:3]}
				duty.Add(reading)
				reading.V = cooled(demand, r.rng.NormFloat64())
				temp.Add(reading)
				single.Add(reading)
				if over++; reading.V <= 86 {
					over = 0
				}
				with, without = append(with, temp.Alarmed()), append(without, single.Alarmed())
			}
			if !clogs {
				if slices.Contains(with, true) {
					t.Errorf("seed %d: alarm of a GPU whose fan is well", seed)
				}
				continue
			}
			day := len(with) - 96
			if with[day] {
				early++
			}
			if without[day] {
				alone++
			}
		}
	}
	t.Logf("foretold a day ahead: %d of %d beside the fan, %d alone", early, seeds, alone)
	if early < 4 || early <= alone {
		t.Errorf("foretold a day ahead: %d of %d, %d alone", early, seeds, alone)
	}
}

// TestBothSummariesSpeak reads every minute what rises for days, far beyond what
// half an hour tells of, and what only goes up and down.
func TestBothSummariesSpeak(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	wear, noise := follow(80, 0), follow(80, 0)
	reported := 0
	var alarmed time.Duration
	for at := time.Duration(0); at < 8*24*time.Hour; at += time.Minute {
		wear.Add(Reading{At: start.Add(at), V: 40 + at.Hours()/6 + rng.NormFloat64()})
		if alarmed == 0 && wear.Alarmed() {
			alarmed = at
		}
		if _, change := noise.Add(Reading{At: start.Add(at), V: 50 + 3*rng.NormFloat64()}); change == Material {
			reported++
		}
		if noise.Alarmed() && at > 24*time.Hour {
			t.Fatalf("alarm %s after the start of what goes up and down", at)
		}
	}
	t.Logf("alarm %s before the crossing; %d changes told of noise", 240*time.Hour-alarmed, reported)
	if alarmed == 0 || alarmed > 6*24*time.Hour {
		t.Errorf("alarm after %s of a rise that crosses after ten days", alarmed)
	}
	if reported > 60 {
		t.Errorf("%d changes told of a series that only goes up and down", reported)
	}
}
