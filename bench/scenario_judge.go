package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"auspex/correlator"
	"auspex/internal/store/records"
	"auspex/predictor"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// correlateStorm judges a recorded storm as replay does, without files.
func (b *bencher) correlateStorm(ctx context.Context) (res Result, err error) {
	peer, err := StartPeer(ctx, PeerStorm, StormOptions{Servers: b.servers, Events: b.n, Seed: 1}, b.err)
	if err != nil {
		return res, err
	}
	var storm Storm
	err = peer.Receive(&storm)
	if err = errors.Join(err, peer.Close()); err != nil {
		return res, err
	}
	engine := correlator.NewEngine(propagation.Default(), &storm.Topology, nil)
	last := map[string]*schemas.Incident{}
	revisions := 0
	take := func() {
		for _, i := range engine.Drain() {
			revisions++
			last[i.ID] = &i
		}
	}
	each := make([]time.Duration, 0, len(storm.Events))
	meter := StartMeter()
	for i := range storm.Events {
		began := time.Now()
		engine.Add(&storm.Events[i])
		take()
		each = append(each, time.Since(began))
		if i&0xfff == 0 && ctx.Err() != nil {
			return res, ctx.Err()
		}
	}
	engine.Advance(engine.Now().Add(2 * time.Minute))
	engine.Flush()
	take()
	res = meter.Stop(b.name, "events", int64(len(storm.Events)))
	res.Latencies("one event taken in and weighed", each)

	owner := map[string]*schemas.Incident{}
	for _, i := range last {
		if i.MergedInto == "" {
			for _, e := range i.Events {
				owner[e] = i
			}
		}
	}
	right, lost := 0, 0
	for _, f := range storm.Faults {
		votes := map[*schemas.Incident]int{}
		for _, e := range f.Events {
			if owner[e] == nil {
				lost++
			}
			votes[owner[e]]++
		}
		var most *schemas.Incident
		for i, n := range votes {
			if i != nil && (most == nil || n > votes[most]) {
				most = i
			}
		}
		if most != nil && most.RootCause.Resource == f.Resource && most.RootCause.Fault == f.Fault {
			right++
		}
	}
	share := float64(right) / float64(max(len(storm.Faults), 1))
	res.Detail = map[string]any{
		"servers": b.servers, "faults": len(storm.Faults), "incidents": len(last), "revisions": revisions, "root_right": share,
		"events_in_no_incident": lost,
	}
	if taken := engine.Stats().Events; taken != uint64(len(storm.Events)) {
		return res, fmt.Errorf("%d of %d events were taken in", taken, len(storm.Events))
	}
	if share < .85 {
		return res, fmt.Errorf("of %d faults %d have the right root: %v", len(storm.Faults), right, res.Detail)
	}
	return res, nil
}

// predictWear reads the telemetry of a fleet in which some fans wear out; each of
// them must be foretold, and at the end at most one in a hundred of the others.
func (b *bencher) predictWear(ctx context.Context) (res Result, err error) {
	file, err := b.inventory(Topology(benchServers, ""))
	if err != nil {
		return res, err
	}
	s, err := b.product("inventory.file=" + file)
	if err != nil {
		return res, err
	}
	o := b.telemetry()
	o.Worn, o.WearShare = []int{3, 17, 40, 61}, 1.2
	want, err := b.fillBus(ctx, o, s.Bus)
	if err != nil {
		return res, err
	}
	l, err := b.start(ctx, s, s.Components("state", "bus")...)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	limited, err := followed(want)
	if err != nil {
		return res, err
	}
	meter := StartMeter()
	p, err := b.start(ctx, s, s.Components("predict")...)
	if err != nil {
		return res, err
	}
	var ps []schemas.Prediction
	err = p.await(ctx, patience, "samples", func() bool {
		read := total(s.Metrics, "auspex_predictor_samples_total", "", "")
		return int64(read+total(s.Metrics, "auspex_predictor_samples_skipped_total", "", "")) >= limited
	})
	if err == nil {
		err = p.await(ctx, 10*time.Second, "predictions", func() bool {
			var rerr error
			ps, _, rerr = s.Parts().Records.Predictions(ctx, records.Filter{Limit: 500})
			return rerr != nil || len(ps) >= len(o.Worn)
		})
	}
	res = meter.Stop(b.name, "samples", want.Samples)
	if err = errors.Join(err, p.stop()); err != nil {
		return res, fmt.Errorf("%w: %d predictions", err, len(ps))
	}
	worn := map[string]bool{}
	for _, i := range o.Worn {
		worn[Server(i)+"/fan1"] = false
	}
	open, withdrawn, example := 0, 0, ""
	for _, p := range ps {
		_, ok := worn[p.Resource]
		switch {
		case ok && p.State != schemas.PredictionAverted:
			worn[p.Resource] = true
		case !ok && p.State == schemas.PredictionOpen:
			open++
			example = fmt.Sprintf("; %s %s: %s", p.Resource, p.Metric, p.Explanation)
		case !ok:
			withdrawn++
		}
	}
	found := 0
	for _, ok := range worn {
		if ok {
			found++
		}
	}
	res.Detail = map[string]any{
		"followed_samples": limited, "worn": len(worn), "foretold": found, "others_open": open, "others_withdrawn": withdrawn,
	}
	if series := benchServers * GPUsPerServer; found < len(worn) || open > series/100 {
		return res, fmt.Errorf("of %d worn fans %d were predicted, and %d healthy parts%s", len(worn), found, open, example)
	}
	return res, nil
}

// followed returns how many of a fleet's samples have a limit.
func followed(t Tally) (int64, error) {
	limits, err := predictor.ReadLimits("")
	if err != nil {
		return 0, err
	}
	has := func(metric string) bool {
		return slices.ContainsFunc(limits, func(l predictor.Limit) bool { return l.Metric == metric })
	}
	n := 0
	for _, m := range schemas.GPUMetrics {
		if has(m.Name) {
			n += GPUsPerServer
		}
	}
	g := NewGenerator(1, 1, time.Now(), time.Second)
	for range 2 { // GPUs, then sensors
		c := g.Next().GetSamples()
		for _, ref := range c.GetRef() {
			if has(c.GetSymbols()[c.GetSeries()[ref].GetMetric()]) {
				n++
			}
		}
	}
	return t.Batches / 2 * int64(n), nil
}
