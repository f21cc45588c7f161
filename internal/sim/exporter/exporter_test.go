package exporter

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
)

func TestMetricsAreInTheShapeOfDCGMExporter(t *testing.T) {
	f := &fake{host: fleet.Host{Name: "gpu-r01-01", Up: true, GPUs: []fleet.HostGPU{
		{
			Index: 0, Present: true, PCI: "0000:1b:00.0", UUID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", Temp: 61.4, Watts: 640.1236, Joules: 12.5,
			Util: 0.934, Reasons: 0x84, FrameMiB: 81559, Memory: 0.5,
		},
		{Index: 1, Present: false, PCI: "0000:43:00.0", UUID: "GPU-b", Model: "NVIDIA H100 80GB HBM3"},
	}}}
	srv := httptest.NewServer(NewHandler(f, "gpu-r01-01"))
	defer srv.Close()
	res, err := http.Get(srv.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(families) {
		t.Errorf("%d families, want %d", len(got), len(families))
	}
	for name, want := range map[string]float64{
		"DCGM_FI_DEV_GPU_TEMP": 61, "DCGM_FI_DEV_POWER_USAGE": 640.124, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 12500, "DCGM_FI_DEV_GPU_UTIL": 93,
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 132, "DCGM_FI_DEV_FB_USED": 40780,
	} {
		fm := got[name]
		if fm == nil || len(fm.Metric) != 1 {
			t.Errorf("%s: %v; a GPU that fell off the bus has no samples", name, fm)
			continue
		}
		m := fm.Metric[0]
		if v := m.GetGauge().GetValue() + m.GetCounter().GetValue(); v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["gpu"] != "0" || labels["UUID"] != "GPU-a" || labels["pci_bus_id"] != "00000000:1B:00.0" || labels["device"] != "nvidia0" ||
			labels["Hostname"] != "gpu-r01-01" {
			t.Errorf("labels %v", labels)
		}
	}
}

func TestAHostThatIsDownClosesTheConnection(t *testing.T) {
	srv := httptest.NewServer(NewHandler(&fake{}, "gpu-r01-01"))
	srv.Config.ErrorLog = nil
	defer srv.Close()
	for _, path := range []string{"/metrics", "/health"} {
		res, err := http.Get(srv.URL + path)
		if err == nil {
			res.Body.Close()
			t.Errorf("%s answered %s", path, res.Status)
		}
		if errors.Is(err, http.ErrHandlerTimeout) {
			t.Error(err)
		}
	}
}

func TestEveryFamilyHasOneValueAGPUOfTheModel(t *testing.T) {
	cfg := fleet.Config{Site: "dc1", Racks: 1, ServersPerRack: 1, GPUs: 8, CRACs: 1}
	f := fleet.New(cfg, 1, t.TempDir(), ledger.Discard(nil), time.Now())
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Settle()
	srv := httptest.NewServer(NewHandler(f, "gpu-r01-01"))
	defer srv.Close()
	res, err := http.Get(srv.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count("\n"+string(body), "\nDCGM_"); n != 8*len(families) {
		t.Errorf("%d samples, want %d", n, 8*len(families))
	}
}

type fake struct{ host fleet.Host }

func (f *fake) Host(name string, h *fleet.Host) bool {
	gpus := append(h.GPUs[:0], f.host.GPUs...)
	*h = f.host
	h.GPUs = gpus
	return name == "gpu-r01-01"
}

func BenchmarkRender(b *testing.B) {
	f := fleet.New(fleet.DefaultConfig(), 1, b.TempDir(), ledger.Discard(nil), time.Now())
	var s scratch
	f.Host("gpu-r01-01", &s.host)
	b.ReportAllocs()
	for b.Loop() {
		s.render()
	}
}
