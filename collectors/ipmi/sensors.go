package ipmi

import (
	"context"
	"math"
	"slices"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/decode/sel"
	"auspex/schemas"
)

// sensorRef is a sensor and where its readings go.
type sensorRef struct {
	s     *ipmi.Sensor
	ref   collectors.Ref
	scale float64
	// supply is set for the discrete sensor of a power supply, whose bits say
	// whether it has input and works.
	supply      bool
	input, good collectors.Ref
	discrete    bool                   // what it says are states, one a bit
	thresholds  []collectors.Threshold // scaled as the readings are
}

// scaled returns what the device gives for a sensor as its readings are.
func (s *sensorRef) scaled(given []schemas.Threshold) (out []collectors.Threshold) {
	for _, t := range given {
		out = append(out, collectors.Threshold{Bound: t.Bound, Value: t.Value * s.scale})
	}
	return out
}

// recheck is how often the stamp of the sensor records is looked at; re-reading
// all of them costs a command or more each.
const recheck = 5 * time.Minute

// How often discrete sensors are read, whose changes are in the event log, and a controller that does not measure its
// power is asked for it.
const (
	restate = time.Minute
	redraw  = time.Hour
)

// Metrics of a server: its power, and whether it has any.
const (
	draws   = "auspex_server_power_watts"
	powerOn = "auspex_server_power_on"
)

// sensorKey is what tells sensors apart (section 33.3).
type sensorKey struct{ owner, lun, number uint8 }

// sensorOf finds the sensor of a record by its owner, or by its number and type where another has sent the record for it.
func (r *reader) sensorOf(rec *sel.Record) *ipmi.Sensor {
	if i, ok := r.model.byKey[sensorKey{uint8(rec.Generator & 0xff), uint8(rec.Generator >> 8 & 3), rec.SensorNumber}]; ok { //nolint:gosec // masked
		return &r.model.known[i]
	}
	var found *ipmi.Sensor
	for i := range r.model.known {
		if s := &r.model.known[i]; s.Number == rec.SensorNumber && s.Type == rec.SensorType {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// rethreshold is how often thresholds that somebody may set are read again.
const rethreshold = time.Hour

// readNames brings the sensor records up to date; they are read again only when
// the repository's stamp has changed.
func (r *reader) readNames(ctx context.Context) error {
	now := r.s.Now()
	if r.haveSDR && now.Sub(r.skewAt) < recheck {
		return nil
	}
	t, err := r.conn.SELTime(ctx)
	if err != nil {
		return err
	}
	r.skew, r.skewAt = t.Sub(now), now
	stamp, err := r.conn.SDRStamp(ctx)
	if err != nil {
		return err
	}
	if r.haveSDR && stamp == r.stamp {
		return r.readThresholds(ctx, now)
	}
	records, err := r.conn.SensorRecords(ctx)
	if err != nil {
		return err
	}
	if r.maker, err = r.conn.Manufacturer(ctx); err != nil {
		return err
	}
	r.stamp, r.haveSDR = stamp, true
	r.model, r.own = modelOf(records), nil
	r.badRecords.Add(float64(r.model.bad))
	r.batch = r.model.batch.Fork(r.device)
	r.parts.readAt = time.Time{} // others may have been put in
	r.thresholdsAt = time.Time{}
	return r.readThresholds(ctx, now)
}

// readThresholds reads those that may have been set since the records were written.
func (r *reader) readThresholds(ctx context.Context, now time.Time) error {
	if now.Sub(r.thresholdsAt) < rethreshold {
		return nil
	}
	for i := range r.model.sensors {
		s := &r.model.sensors[i]
		if !s.s.Settable || s.supply {
			continue
		}
		given, err := r.conn.Thresholds(ctx, s.s)
		if err != nil {
			return err
		}
		switch now := s.scaled(given); {
		case slices.Equal(now, s.thresholds):
			delete(r.own, i)
		case r.own == nil:
			r.own = map[int][]collectors.Threshold{i: now}
		default:
			r.own[i] = now
		}
	}
	r.thresholdsAt = now
	return nil
}

// Codes of IPMI 2.0, tables 42-1 and 42-3.
const (
	typePowerSupply = 0x08
	sensorSpecific  = 0x6f
	thresholds      = 0x01

	supplyPresent   = 1 << 0
	supplyFailed    = 1 << 1
	supplyInputLost = 1<<3 | 1<<4 | 1<<5
)

func (r *reader) readSensors(ctx context.Context, now time.Time) error {
	states := now.Sub(r.statesAt) >= restate
	if states {
		r.statesAt = now
	}
	for i := range r.model.sensors {
		s := &r.model.sensors[i]
		if s.discrete && !states {
			continue
		}
		v, err := r.conn.Read(ctx, s.s)
		if err != nil {
			return err
		}
		if !v.OK {
			continue
		}
		if s.supply {
			if v.States&supplyPresent != 0 {
				r.batch.Sample(s.input, now, truth(v.States&supplyInputLost == 0))
				r.batch.Sample(s.good, now, truth(v.States&supplyFailed == 0))
			}
			continue
		}
		if s.discrete {
			r.batch.Sample(s.ref, now, float64(v.States))
			continue
		}
		r.batch.Sample(s.ref, now, s.s.Value(v.Raw)*s.scale)
		limits := s.thresholds
		if own, ok := r.own[i]; ok {
			limits = own
		}
		r.batch.Thresholds(s.ref, now, limits...)
	}
	return r.readDraw(ctx, now)
}

// readDraw reads the server's power over DCMI where no sensor tells it.
func (r *reader) readDraw(ctx context.Context, now time.Time) error {
	if r.model.tells || now.Before(r.drawFrom) {
		return nil
	}
	watts, err := r.conn.PowerDraw(ctx)
	if err != nil {
		return err
	}
	if math.IsNaN(watts) {
		r.drawFrom = now.Add(redraw)
		return nil
	}
	r.batch.Sample(r.batch.Series(draws, "", "", "sensor", "DCMI"), now, watts)
	return nil
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
