package ipmi

import (
	"context"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// sensorRef is a sensor and where its readings go.
type sensorRef struct {
	s     ipmi.Sensor
	ref   collectors.Ref
	scale float64
	// supply is set for the discrete sensor of a power supply, whose bits say
	// whether it has input and works.
	supply      bool
	input, good collectors.Ref
	thresholds  []collectors.Threshold // scaled as the readings are
}

// setThresholds takes what the device gives for a sensor.
func (s *sensorRef) setThresholds(given []schemas.Threshold) {
	s.thresholds = s.thresholds[:0]
	for _, t := range given {
		s.thresholds = append(s.thresholds, collectors.Threshold{Bound: t.Bound, Value: t.Value * s.scale})
	}
}

// recheck is how often the stamp of the sensor records is looked at; re-reading
// all of them costs a command or more each.
const recheck = 5 * time.Minute

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
	list, bad, err := r.conn.Sensors(ctx)
	if err != nil {
		return err
	}
	r.badRecords.Add(float64(bad))
	if r.maker, err = r.conn.Manufacturer(ctx); err != nil {
		return err
	}
	r.stamp, r.haveSDR = stamp, true
	r.sensors, r.names = r.sensors[:0], make(map[uint8]string, len(list))
	r.batch = collectors.NewBatch(r.device, Name)
	for _, s := range list {
		r.names[s.Number] = s.Name
		ref := sensorRef{s: s}
		kind, part := sensor.Part(s.Name)
		switch {
		case s.Analog && s.Unit != ipmi.UnitNone:
			c := sensor.Classify(s.Name, "", sensor.Quantity(s.Unit))
			ref.ref, ref.scale = r.batch.Series(c.Metric, c.Kind, c.Part, "sensor", s.Name), c.Scale
			ref.setThresholds(s.Thresholds)
		case s.Type == typePowerSupply && s.Reading == sensorSpecific && kind == schemas.KindPSU:
			ref.supply = true
			ref.input = r.batch.Series("auspex_psu_input_present", kind, part, "sensor", s.Name)
			ref.good = r.batch.Series("auspex_psu_healthy", kind, part, "sensor", s.Name)
		default:
			continue // states of other discrete sensors come as events
		}
		r.sensors = append(r.sensors, ref)
	}
	r.thresholdsAt = time.Time{}
	return r.readThresholds(ctx, now)
}

// readThresholds reads those that may have been set since the records were written.
func (r *reader) readThresholds(ctx context.Context, now time.Time) error {
	if now.Sub(r.thresholdsAt) < rethreshold {
		return nil
	}
	for i := range r.sensors {
		s := &r.sensors[i]
		if !s.s.Settable || s.supply {
			continue
		}
		given, err := r.conn.Thresholds(ctx, &s.s)
		if err != nil {
			return err
		}
		s.setThresholds(given)
	}
	r.thresholdsAt = now
	return nil
}

// Codes of IPMI 2.0, tables 42-1 and 42-3.
const (
	typePowerSupply = 0x08
	sensorSpecific  = 0x6f

	supplyPresent   = 1 << 0
	supplyFailed    = 1 << 1
	supplyInputLost = 1<<3 | 1<<4 | 1<<5
)

func (r *reader) readSensors(ctx context.Context, now time.Time) error {
	for i := range r.sensors {
		s := &r.sensors[i]
		v, err := r.conn.Read(ctx, &s.s)
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
		r.batch.Sample(s.ref, now, s.s.Value(v.Raw)*s.scale)
		r.batch.Thresholds(s.ref, now, s.thresholds...)
	}
	return nil
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
