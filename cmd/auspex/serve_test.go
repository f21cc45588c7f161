package main

import (
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The first who asks is told the rate since the process began, not since the year 1.
func TestTheFirstSampleRateIsSinceTheStart(t *testing.T) {
	s := newStack(DefaultConfig(), io.Discard, io.Discard)
	samples := prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_samples_total"})
	s.reg.MustRegister(samples)
	samples.Add(60_000)
	s.rateAt = s.rateAt.Add(-30 * time.Second)
	if got := s.sampleRate(); got < 1000 || got > 2000 {
		t.Errorf("60000 samples in 30 s are %g a second", got)
	}
}
