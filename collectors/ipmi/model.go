package ipmi

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// model is what the sensor records of a controller say. Controllers with the same records, as those of one model of server
// have, share it: it is never changed.
type model struct {
	records string // as they were read
	bad     int    // of them, malformed
	known   []ipmi.Sensor
	byKey   map[sensorKey]int // where each stands
	sensors []sensorRef       // those that are read
	places  []partPlace       // whose inventories the controller keeps
	tells   bool              // a sensor tells the server's power
	batch   *collectors.Batch // with the names of their series
}

// models holds those that are in use.
var models = struct {
	sync.Mutex
	held map[string]weak.Pointer[model]
}{held: map[string]weak.Pointer[model]{}}

// modelOf returns what sensor records say.
func modelOf(records []byte) *model {
	models.Lock()
	m := models.held[string(records)].Value()
	models.Unlock()
	if m != nil {
		return m
	}
	m = newModel(records)
	models.Lock()
	defer models.Unlock()
	if other := models.held[m.records].Value(); other != nil {
		return other
	}
	models.held[m.records] = weak.Make(m)
	runtime.AddCleanup(m, func(records string) {
		models.Lock()
		defer models.Unlock()
		if models.held[records].Value() == nil { // another may have come
			delete(models.held, records)
		}
	}, m.records)
	return m
}

func newModel(records []byte) *model {
	m := &model{records: string(records), batch: collectors.NewBatch("", Name)}
	m.known, m.bad = ipmi.ParseSensors(records)
	m.places = placesOf(ipmi.ParseFRUDevices(records))
	m.byKey = make(map[sensorKey]int, len(m.known))
	m.batch.Series(powerOn, "", "")
	for i := range m.known {
		s := &m.known[i]
		m.byKey[sensorKey{s.Owner, s.LUN, s.Number}] = i
		ref := sensorRef{s: s}
		kind, part := sensor.Part(s.Name)
		switch {
		case s.Analog && s.Unit != ipmi.UnitNone:
			c := sensor.Classify(s.Name, "", sensor.Quantity(s.Unit))
			ref.ref, ref.scale = m.batch.Series(c.Metric, c.Kind, c.Part, "sensor", s.Name), c.Scale
			ref.thresholds = ref.scaled(s.Thresholds)
			m.batch.Thresholds(ref.ref, time.Unix(1, 0), ref.thresholds...)
			m.tells = m.tells || c.Metric == draws && c.Part == ""
		case s.Type == typePowerSupply && s.Reading == sensorSpecific && kind == schemas.KindPSU:
			ref.supply = true
			ref.input = m.batch.Series("auspex_psu_input_present", kind, part, "sensor", s.Name)
			ref.good = m.batch.Series("auspex_psu_healthy", kind, part, "sensor", s.Name)
		case !s.Analog && !s.EventOnly && s.Reading != thresholds:
			c := sensor.Classify(s.Name, "", sensor.State)
			ref.discrete, ref.ref, ref.scale = true, m.batch.Series(c.Metric, c.Kind, c.Part, "sensor", s.Name), 1
		default:
			continue
		}
		m.sensors = append(m.sensors, ref)
	}
	m.batch.Discard() // its names are what is wanted
	return m
}
