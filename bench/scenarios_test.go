package bench

import (
	"errors"
	"io"
	"slices"
	"testing"

	"auspex/internal/usage"
)

func TestBenchKnowsEveryScenarioOfTheContract(t *testing.T) {
	for _, want := range []string{
		"gnmi-ingest", "ipmi-poll", "redfish-poll", "bus-produce", "bus-consume", "pipeline", "correlate", "predict", "alert-latency",
		"notify-latency", "burst", "agent", "agent-alert-latency", "control", "ipmi-fleet", "ipmi-sick", "bus-away", "exporter-page", "api-reads", "api-allocate", "api-stream", "api-list", "api-logins",
	} {
		if !slices.Contains(Scenarios(), want) {
			t.Errorf("there is no scenario %s", want)
		}
	}
}

func TestAGroupIsItsScenarios(t *testing.T) {
	for name, want := range map[string][]string{
		"api": {"api-reads", "api-allocate", "api-stream", "api-list", "api-logins"}, "agent": {"agent"}, "nothing": {"nothing"},
	} {
		if got := members(name); !slices.Equal(got, want) {
			t.Errorf("%s is %v", name, got)
		}
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	for name, f := range map[string]func() error{
		"an unknown scenario": func() error { return Run(t.Context(), Options{}, []string{"pipelin"}, io.Discard, io.Discard) },
		"a negative fleet":    func() error { return Run(t.Context(), Options{Servers: -1}, nil, io.Discard, io.Discard) },
		"a negative number":   func() error { return Run(t.Context(), Options{N: -1}, nil, io.Discard, io.Discard) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := f(); !errors.Is(err, usage.Err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
