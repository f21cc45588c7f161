package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/jetstream"
	"auspex/internal/run"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/pipeline/sink"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

const (
	benchServers = 64
	publishers   = 16 // collectors that publish at the same time
	patience     = 2 * time.Minute
)

func (b *bencher) telemetry() TelemetryOptions {
	return TelemetryOptions{Samples: int64(b.n), Servers: benchServers, Seed: 1, Every: 10 * time.Second}
}

// busProduce publishes batches as collectors do, one a call, and reads them back.
func (b *bencher) busProduce(ctx context.Context) (res Result, err error) {
	peer, err := StartPeer(ctx, PeerFrames, b.telemetry(), b.err)
	if err != nil {
		return res, err
	}
	msgs, want, err := peer.Frames()
	if err = errors.Join(err, peer.Close()); err != nil {
		return res, err
	}
	q, err := b.openBus(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	lanes := make([][]bus.Message, publishers)
	bytes := int64(0)
	var batch auspexv1.Batch
	want = Tally{}
	for _, m := range msgs {
		h := fnv.New32a()
		_, _ = h.Write([]byte(m.Key))
		i := h.Sum32() % publishers
		lanes[i] = append(lanes[i], m)
		bytes += int64(len(m.Value))
		batch.ResetVT()
		if err := batch.UnmarshalVT(m.Value); err != nil {
			return res, err
		}
		want.Add(m.Value, &batch)
	}
	if _, err := q.Partitions(ctx, schemas.TopicTelemetry); err != nil {
		return res, err
	}
	var calls times
	errs := make([]error, publishers)
	meter := StartMeter()
	var wg sync.WaitGroup
	for i, lane := range lanes {
		wg.Go(func() {
			for _, m := range lane {
				began := time.Now()
				if errs[i] = q.Publish(ctx, m); errs[i] != nil {
					return
				}
				calls.add(time.Since(began))
			}
		})
	}
	wg.Wait()
	res = meter.Stop(b.name, "samples", want.Samples)
	if err := errors.Join(errs...); err != nil {
		return res, err
	}
	res.Latencies("publish of one batch until it is durable", calls.all())
	res.Detail = map[string]any{"batches": want.Batches, "bytes": bytes}
	got, err := readBack(ctx, q, want.Batches)
	if err == nil && got != want {
		err = fmt.Errorf("read back %+v, published %+v", got, want)
	}
	return res, err
}

func (b *bencher) openBus(ctx context.Context) (*jetstream.Bus, error) {
	cfg := jetstream.DefaultConfig()
	cfg.Dir = b.path("bus")
	return jetstream.Open(ctx, cfg)
}

// readBack reads the telemetry of a bus from its beginning until it has seen so many
// batches, and decodes them.
func readBack(ctx context.Context, q bus.Subscriber, batches int64) (t Tally, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	decoders := sync.Pool{New: func() any { return new(auspexv1.Batch) }}
	err = q.Subscribe(ctx, bus.Subscription{Topic: schemas.TopicTelemetry, Group: "bench"}, func(_ context.Context, msgs []bus.Message) error {
		batch, _ := decoders.Get().(*auspexv1.Batch)
		defer decoders.Put(batch)
		var part Tally
		for _, m := range msgs {
			batch.ResetVT()
			if err := batch.UnmarshalVT(m.Value); err != nil {
				return fmt.Errorf("decode batch %d of partition %d: %w", m.Offset, m.Partition, err)
			}
			part.Add(m.Value, batch)
		}
		mu.Lock()
		defer mu.Unlock()
		t.Batches += part.Batches
		t.Samples += part.Samples
		t.GPURows += part.GPURows
		t.Energy += part.Energy
		t.Hash += part.Hash
		if t.Batches >= batches {
			cancel()
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if t.Batches < batches {
		return t, errors.Join(fmt.Errorf("%d of %d batches were read", t.Batches, batches), err)
	}
	return t, err
}

// fillBus has a peer fill the bus in a folder.
func (b *bencher) fillBus(ctx context.Context, o TelemetryOptions, dir string) (want Tally, err error) {
	o.Dir = dir
	peer, err := StartPeer(ctx, PeerFill, o, b.err)
	if err != nil {
		return want, err
	}
	err = peer.Receive(&want)
	return want, errors.Join(err, peer.Close())
}

// busConsume reads and decodes what is on the bus.
func (b *bencher) busConsume(ctx context.Context) (res Result, err error) {
	want, err := b.fillBus(ctx, b.telemetry(), b.path("bus"))
	if err != nil {
		return res, err
	}
	q, err := b.openBus(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	meter := StartMeter()
	got, err := readBack(ctx, q, want.Batches)
	res = meter.Stop(b.name, "samples", got.Samples)
	if err == nil && got != want {
		err = fmt.Errorf("read %+v, published %+v", got, want)
	}
	res.Detail = map[string]any{"batches": want.Batches}
	return res, err
}

// pipeline brings telemetry from the bus to the engine: decode, enrich, insert.
func (b *bencher) pipeline(ctx context.Context) (res Result, err error) {
	file, err := b.inventory(Topology(benchServers, ""))
	if err != nil {
		return res, err
	}
	s, err := b.product("inventory.file=" + file)
	if err != nil {
		return res, err
	}
	want, err := b.fillBus(ctx, b.telemetry(), s.Bus)
	if err != nil {
		return res, err
	}
	l, err := b.start(ctx, s, s.Components("state", "bus")...)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := embedded.Fetch(ctx, func(text string) { fmt.Fprintln(b.err, "auspex:", text) }); err != nil {
		return res, err
	}
	ecfg := s.Engine
	ecfg.Log, ecfg.Metrics = s.Log, s.Metrics
	engine, err := embedded.Start(ctx, ecfg)
	if err != nil {
		return res, err
	}
	defer engine.Close()
	cfg := s.History
	cfg.Dial = engine.Dial
	db, err := clickhouse.Open(ctx, cfg)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	w, err := sink.New(s.Sink, s.Parts().Bus, db, s.Parts().Enrich, s.Log, s.Metrics)
	if err != nil {
		return res, err
	}
	rows := want.GPURows + want.Samples - want.GPURows*int64(len(schemas.GPUMetrics))
	meter := StartMeter("engine")
	writer, err := b.start(ctx, s, run.Func("sink", w.Run))
	if err != nil {
		return res, err
	}
	err = writer.await(ctx, patience, "rows", func() bool {
		time.Sleep(20 * time.Millisecond) // asking costs time of the product
		return int64(total(s.Metrics, "auspex_sink_rows_total", "", "")) >= rows
	})
	res = meter.Stop(b.name, "samples", want.Samples)
	if err = errors.Join(err, writer.stop()); err != nil {
		return res, err
	}
	var got struct{ gpuRows, sampleRows, batches, energy, stray uint64 }
	err = db.Conn().QueryRow(ctx, `SELECT (SELECT count() FROM gpu), (SELECT count() FROM samples),
(SELECT uniqExact(bus_partition, bus_offset) FROM (SELECT bus_partition, bus_offset FROM gpu UNION ALL SELECT bus_partition, bus_offset FROM samples)),
(SELECT sum(toUInt64(total_energy_millijoules)) FROM gpu), (SELECT count() FROM gpu WHERE rack = '') + (SELECT count() FROM samples WHERE rack = '')`).
		Scan(&got.gpuRows, &got.sampleRows, &got.batches, &got.energy, &got.stray)
	if err != nil {
		return res, fmt.Errorf("read rows back: %w", err)
	}
	if int64(got.gpuRows) != want.GPURows || int64(got.gpuRows+got.sampleRows) != rows || int64(got.batches) != want.Batches ||
		int64(got.energy) != want.Energy || got.stray > 0 {
		return res, fmt.Errorf("the engine holds %+v, published were %+v: %d rows", got, want, rows)
	}
	res.Detail = map[string]any{"rows": rows, "gpu_rows": got.gpuRows, "batches": got.batches}
	return res, nil
}
