package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"auspex/internal/bus"
	"auspex/internal/bus/bustest"
	"auspex/internal/bus/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	bustest.Run(t, bustest.Options{
		Open: func(*testing.T) bus.Bus { return mem.New(3) }, Volatile: true, MaxMessageBytes: mem.MaxMessageBytes,
	})
}
