package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"auspex/internal/run"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/pipeline/sink"
)

const clickHouseOff, clickHouseEmbedded = "off", "embedded"

// openHistory opens ClickHouse and fills it, in the background: everything else
// goes on without it, and what was missed is read from the bus.
func (s *stack) openHistory(context.Context) (run.Component, error) {
	return run.Func("history", func(ctx context.Context, ready func()) error {
		ready()
		if s.cfg.Store.ClickHouse == clickHouseOff {
			s.health.Check("history", func() error { return errors.New("history is off by configuration") })
			<-ctx.Done()
			return nil
		}
		for wait := time.Second; ; wait = min(2*wait, time.Minute) {
			err := s.runHistory(ctx)
			if ctx.Err() != nil {
				return nil
			}
			s.history.Store(nil)
			s.health.Check("history", func() error { return err })
			if errors.Is(err, embedded.ErrUnavailable) {
				fmt.Fprintf(s.err, "auspex: %v; the hot window serves the last hours.\n", err)
				<-ctx.Done()
				return nil
			}
			s.log.Error("history stopped; trying again", "error", err, "in", wait.String())
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
	}), nil
}

func (s *stack) runHistory(ctx context.Context) error {
	cfg := s.cfg.Store.History
	if s.cfg.Store.ClickHouse == clickHouseEmbedded {
		if s.cfg.Store.Fetch {
			if err := FetchEngine(ctx, s.err); err != nil {
				return err
			}
		}
		ecfg := s.cfg.Store.Engine
		ecfg.Log, ecfg.Metrics = s.log, s.unique("engine")
		engine, err := embedded.Start(ctx, ecfg)
		if err != nil {
			return err
		}
		defer engine.Close()
		s.health.Check("engine", engine.Health)
		cfg.Dial = engine.Dial
	} else {
		cfg.DSN = s.cfg.Store.ClickHouse
	}
	db, err := clickhouse.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	w, err := sink.New(s.cfg.Store.Sink, s.bus, db, s.enrich, s.log, s.unique("sink"))
	if err != nil {
		return err
	}
	s.history.Store(db)
	s.health.Check("history", w.Health)
	return w.Run(ctx, func() {})
}

// FetchEngine gets the engine's library once; progress goes to w.
func FetchEngine(ctx context.Context, w io.Writer) error {
	return embedded.Fetch(ctx, func(text string) { fmt.Fprintln(w, "auspex:", text) })
}

// EngineMain is the embedded engine's process.
func EngineMain(args []string) int { return embedded.Main(args) }

// hotFeed fills the hot window from the bus.
func (s *stack) hotFeed(context.Context) (run.Component, error) {
	return sink.NewHot(s.bus, s.hot, s.log, s.reg)
}
