// Package exporter serves the metrics of a simulated host in the shape of
// NVIDIA's dcgm-exporter: one family a DCGM field, one sample a GPU, with the
// labels gpu, UUID, pci_bus_id, device, modelName and Hostname.
package exporter

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"auspex/internal/sim/fleet"
)

// Fleet gives the state of a host.
type Fleet interface {
	Host(name string, h *fleet.Host) bool
}

type family struct {
	name, typ, help string
	value           func(g *fleet.HostGPU) float64
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var families = []family{
	{"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", func(g *fleet.HostGPU) float64 { return round(g.SMClock, 0) }},
	{"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", func(g *fleet.HostGPU) float64 { return g.MemClock }},
	{"DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", func(g *fleet.HostGPU) float64 { return round(g.MemTemp, 0) }},
	{"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", func(g *fleet.HostGPU) float64 { return round(g.Temp, 0) }},
	{
		"DCGM_FI_DEV_MEM_MAX_OP_TEMP", "gauge", "Maximum operating temperature for the memory (in C).",
		func(*fleet.HostGPU) float64 { return fleet.MemoryMaxC },
	},
	{
		"DCGM_FI_DEV_GPU_MAX_OP_TEMP", "gauge", "Maximum operating temperature for the GPU (in C).",
		func(*fleet.HostGPU) float64 { return fleet.MaxOperatingC },
	},
	{
		"DCGM_FI_DEV_SLOWDOWN_TEMP", "gauge", "Slowdown temperature for the GPU (in C).",
		func(*fleet.HostGPU) float64 { return fleet.SlowdownC },
	},
	{
		"DCGM_FI_DEV_SHUTDOWN_TEMP", "gauge", "Shutdown temperature for the GPU (in C).",
		func(*fleet.HostGPU) float64 { return fleet.ShutdownC },
	},
	{
		"DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "Current power limit for the GPU (in W).",
		func(g *fleet.HostGPU) float64 { return g.Set.PowerLimit },
	},
	{"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", func(g *fleet.HostGPU) float64 { return round(g.Watts, 3) }},
	{
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).",
		func(g *fleet.HostGPU) float64 { return round(g.Joules*1000, 0) },
	},
	{"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", func(g *fleet.HostGPU) float64 { return g.PCIeReplays }},
	{"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", func(g *fleet.HostGPU) float64 { return round(g.Util*100, 0) }},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", func(g *fleet.HostGPU) float64 { return round(g.Util*62, 0) }},
	{"DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", func(*fleet.HostGPU) float64 { return 0 }},
	{"DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", func(*fleet.HostGPU) float64 { return 0 }},
	{"DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", func(g *fleet.HostGPU) float64 { return float64(g.XID) }},
	{
		"DCGM_FI_DEV_POWER_VIOLATION", "counter", "Throttling duration due to power constraints (in us).",
		func(g *fleet.HostGPU) float64 { return round(g.PowerMicroseconds, 0) },
	},
	{
		"DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Throttling duration due to thermal constraints (in us).",
		func(g *fleet.HostGPU) float64 { return round(g.ThermalMicroseconds, 0) },
	},
	{
		"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Current clock event reasons (bitmask).",
		func(g *fleet.HostGPU) float64 { return float64(g.Reasons) },
	},
	{
		"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).",
		func(g *fleet.HostGPU) float64 { return round(g.FrameMiB*(1-g.Memory)-611, 0) },
	},
	{
		"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).",
		func(g *fleet.HostGPU) float64 { return round(g.FrameMiB*g.Memory, 0) },
	},
	{"DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", func(*fleet.HostGPU) float64 { return 611 }},
	{
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Total number of single-bit volatile ECC errors.",
		func(g *fleet.HostGPU) float64 { return g.SBE },
	},
	{
		"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors.",
		func(g *fleet.HostGPU) float64 { return g.DBE },
	},
	{
		"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "Total number of single-bit persistent ECC errors.",
		func(g *fleet.HostGPU) float64 { return g.SBEAggregate },
	},
	{
		"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Total number of double-bit persistent ECC errors.",
		func(g *fleet.HostGPU) float64 { return g.DBEAggregate },
	},
	{
		"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for uncorrectable errors",
		func(g *fleet.HostGPU) float64 { return g.RemappedUncorrectable },
	},
	{
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for correctable errors",
		func(g *fleet.HostGPU) float64 { return g.RemappedCorrectable },
	},
	{"DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed", func(*fleet.HostGPU) float64 { return 0 }},
	{
		"DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether a remapping of rows waits for a reset",
		func(g *fleet.HostGPU) float64 { return flag(g.RemapPending) },
	},
	{
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "Total number of NVLink bandwidth counters for all lanes.",
		func(g *fleet.HostGPU) float64 { return round(g.NVLinkBytes/1e6, 0) },
	},
	{
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "Total number of NVLink flow-control CRC errors.",
		func(g *fleet.HostGPU) float64 { return g.CRCErrors },
	},
	{
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "Total number of NVLink retries.",
		func(g *fleet.HostGPU) float64 { return g.NVLinkReplays },
	},
	{
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active.",
		func(g *fleet.HostGPU) float64 { return round(g.Util, 6) },
	},
	{
		"DCGM_FI_PROF_SM_ACTIVE", "gauge", "The ratio of cycles an SM has at least 1 warp assigned.",
		func(g *fleet.HostGPU) float64 { return round(g.Util*0.91, 6) },
	},
	{
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor (HMMA) pipe is active.",
		func(g *fleet.HostGPU) float64 { return round(g.Util*0.47, 6) },
	},
	{
		"DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active sending or receiving data.",
		func(g *fleet.HostGPU) float64 { return round(g.Util*0.55, 6) },
	},
	{
		"DCGM_FI_PROF_PCIE_TX_BYTES", "counter", "The number of bytes of active pcie tx (transmit) data including both header and payload.",
		func(g *fleet.HostGPU) float64 { return round(g.TxBytes, 0) },
	},
	{
		"DCGM_FI_PROF_PCIE_RX_BYTES", "counter", "The number of bytes of active pcie rx (read) data including both header and payload.",
		func(g *fleet.HostGPU) float64 { return round(g.RxBytes, 0) },
	},
}

func round(x float64, digits int) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', digits, 64), 64)
	return v
}

type scratch struct {
	host   fleet.Host
	labels []string
	out    []byte
}

var pool = sync.Pool{New: func() any { return new(scratch) }}

// NewHandler returns the exporter of one host. While the host is down the
// connection is closed without an answer.
func NewHandler(f Fleet, host string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		s := pool.Get().(*scratch)
		defer pool.Put(s)
		if !f.Host(host, &s.host) || !s.host.Up {
			panic(http.ErrAbortHandler)
		}
		s.render()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(s.out)
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		s := pool.Get().(*scratch)
		defer pool.Put(s)
		if !f.Host(host, &s.host) || !s.host.Up {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte("OK"))
	})
	return mux
}

func (s *scratch) render() {
	s.labels = s.labels[:0]
	for i := range s.host.GPUs {
		g := &s.host.GPUs[i]
		s.labels = append(s.labels, `{gpu="`+strconv.Itoa(g.Index)+`",UUID="`+g.UUID+`",pci_bus_id="`+longPCI(g.PCI)+`",device="nvidia`+strconv.Itoa(g.Index)+
			`",modelName="`+g.Model+`",Hostname="`+s.host.Name+`",DCGM_FI_DRIVER_VERSION="`+s.host.Driver+`"} `)
	}
	b := s.out[:0]
	for i := range families {
		fm := &families[i]
		b = append(b, "# HELP "...)
		b = append(b, fm.name...)
		b = append(b, ' ')
		b = append(b, fm.help...)
		b = append(b, "\n# TYPE "...)
		b = append(b, fm.name...)
		b = append(b, ' ')
		b = append(b, fm.typ...)
		b = append(b, '\n')
		for n := range s.host.GPUs {
			g := &s.host.GPUs[n]
			if !g.Present || g.Hung || g.Failing {
				continue
			}
			b = append(b, fm.name...)
			b = append(b, s.labels[n]...)
			v := fm.value(g)
			if v == float64(int64(v)) {
				b = strconv.AppendInt(b, int64(v), 10)
			} else {
				b = strconv.AppendFloat(b, v, 'f', -1, 64)
			}
			b = append(b, '\n')
		}
	}
	s.out = b
}

// longPCI is the address as DCGM writes it, with eight digits of domain.
func longPCI(pci string) string {
	if domain, rest, ok := strings.Cut(pci, ":"); ok && len(domain) == 4 {
		return "0000" + strings.ToUpper(domain+":"+rest)
	}
	return pci
}
