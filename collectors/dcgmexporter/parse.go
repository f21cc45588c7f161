package dcgmexporter

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"auspex/collectors"
	"auspex/internal/decode/gpuwatch"
	"auspex/schemas"
)

const (
	// maxSeries bounds the series of a host, ten times what it has at most; labels
	// that change with each scrape would otherwise fill the hot window. They are
	// learnt anew after relearn.
	maxSeries = 1 << 14
	relearn   = time.Hour
)

// columnOf finds the packed column of a metric by its name.
func columnOf(metric string) (int, bool) {
	if metric == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" { // before DCGM 3.3
		metric = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
	}
	return collectors.GPUColumn(metric)
}

func mustColumn(metric string) int {
	c, ok := columnOf(metric)
	if !ok {
		panic(metric + " has no column")
	}
	return c
}

// series is what a line's name and labels stand for.
type series struct {
	column int // index into schemas.GPUMetrics, or -1
	gpu    int // row of table.gpus, or -1
	ref    collectors.Ref
	remap  bool // DCGM_FI_DEV_ROW_REMAP_PENDING
	// bounds is set where the line is a threshold of another metric.
	bounds *threshold
}

// told is what a GPU told beside its columns in this scrape.
type told struct {
	reads   bool // something that is no counter: the driver remembers those of a GPU that is gone
	pending float64
}

// table holds one host's scrape. It is filled again for each scrape; the names
// of known series are found without allocation.
type table struct {
	known  map[string]series
	gpus   collectors.GPUs
	told   []told // by row
	batch  *collectors.Batch
	fresh  func() *collectors.Batch
	since  time.Time // of the first series
	labels []label
}

type label struct{ name, value string }

func newTable(fresh func() *collectors.Batch) *table {
	return &table{known: make(map[string]series), batch: fresh(), fresh: fresh}
}

func (t *table) reset(now time.Time) {
	t.gpus.Reset()
	for i := range t.told {
		t.told[i] = told{pending: math.NaN()}
	}
	if len(t.known) == 0 {
		t.since = now
	} else if len(t.known) >= maxSeries && now.Sub(t.since) >= relearn {
		clear(t.known)
		t.batch, t.since = t.fresh(), now
	}
}

// parse reads an exposition (Prometheus text format 0.0.4). It returns how many
// samples it has taken, how many lines it could not read, and the first reason.
func (t *table) parse(body []byte, now time.Time) (samples, bad int, first error) {
	t.reset(now)
	for len(body) > 0 {
		line := body
		if i := bytes.IndexByte(body, '\n'); i >= 0 {
			line, body = body[:i], body[i+1:]
		} else {
			body = nil
		}
		for len(line) > 0 && (line[len(line)-1] == '\r' || line[len(line)-1] == ' ') {
			line = line[:len(line)-1]
		}
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := t.line(line, now); err != nil {
			if bad++; first == nil {
				first = err
			}
			continue
		}
		samples++
	}
	return samples, bad, first
}

func (t *table) line(line []byte, now time.Time) error {
	end := keyEnd(line)
	if end <= 0 {
		return fmt.Errorf("line %.60q has no value", line)
	}
	key, rest := line[:end], bytes.TrimLeft(line[end:], " \t")
	num, stamp, _ := bytes.Cut(rest, []byte{' '})
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(num), len(num)), 64) // not kept
	if err != nil || len(num) == 0 {
		if bytes.IndexByte(num, ',') > 0 {
			return fmt.Errorf("value %.40q of %.60q has a decimal comma", num, key)
		}
		return fmt.Errorf("value %.40q of %.60q is not a number", num, key)
	}
	at := now
	if len(stamp) > 0 {
		ms, err := strconv.ParseInt(string(bytes.TrimSpace(stamp)), 10, 64)
		if err != nil {
			return fmt.Errorf("time %.40q of %.60q is not a number", stamp, key)
		}
		at = time.UnixMilli(ms)
	}
	s, ok := t.known[string(key)]
	if !ok {
		if s, err = t.learn(string(key)); err != nil {
			return err
		}
	}
	if blank(v) {
		return nil
	}
	if s.gpu >= 0 {
		t.gpus.Seen(s.gpu, at)
		t.told[s.gpu].reads = t.told[s.gpu].reads || s.column >= 0 && !schemas.GPUMetrics[s.column].Counter && !remembered[s.column]
	}
	if s.column >= 0 {
		t.gpus.Set(s.gpu, s.column, at, v)
		return nil
	}
	if s.remap {
		t.told[s.gpu].pending = v
	}
	t.batch.Sample(s.ref, at, v)
	if s.bounds != nil && v > 0 && v < s.bounds.below {
		gpu := "gpu" + strconv.FormatUint(uint64(t.gpus.At(s.gpu).Index), 10)
		t.batch.ThresholdsOf(s.bounds.metric, schemas.KindGPU, gpu, at, collectors.Threshold{Bound: s.bounds.bound, Value: v})
	}
	return nil
}

// remembered are the gauges that the driver knows of a GPU that is gone.
var remembered = map[int]bool{columnXID: true, mustColumn("DCGM_FI_DEV_ROW_REMAP_FAILURE"): true}

// blank reports whether a number is one of those that stand for no value: not
// known, not found, not supported, not permitted (dcgm_structs.h, DCGM_INT32_BLANK,
// DCGM_INT64_BLANK and DCGM_FP64_BLANK with the three that follow each).
func blank(v float64) bool {
	const int32Blank, fp64Blank, int64Blank = 0x7ffffff0, 1 << 47, 0x7ffffffffffffff0
	return v >= int32Blank && v <= int32Blank+3 || v >= fp64Blank && v <= fp64Blank+3 || v == int64Blank
}

// keyEnd returns where name and labels end; quoted values may hold anything.
func keyEnd(line []byte) int {
	open := bytes.IndexByte(line, '{')
	space := bytes.IndexByte(line, ' ')
	if open < 0 || space >= 0 && space < open {
		return space
	}
	quoted := false
	for i := open + 1; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}

var errTooMany = fmt.Errorf("more than %d series in one exposition", maxSeries)

// learn parses name and labels of a series that is new.
func (t *table) learn(key string) (series, error) {
	if len(t.known) >= maxSeries {
		return series{}, errTooMany
	}
	name, rest, has := strings.Cut(key, "{")
	t.labels = t.labels[:0]
	if has {
		if err := t.parseLabels(strings.TrimSuffix(rest, "}")); err != nil {
			return series{}, fmt.Errorf("labels of %.60q: %w", key, err)
		}
	}
	s := series{column: -1, gpu: -1}
	index, err := strconv.ParseUint(t.label("gpu"), 10, 16)
	if err == nil {
		if index >= collectors.MaxGPUs {
			return series{}, fmt.Errorf("GPU %d: a host has at most %d", index, collectors.MaxGPUs)
		}
		s.gpu = t.gpuAt(uint32(index), t.label("UUID"), gpuwatch.PCI(t.label("pci_bus_id")))
	}
	if c, ok := columnOf(name); ok && s.gpu >= 0 && t.label("GPU_I_ID") == "" {
		s.column = c
		t.known[key] = s
		return s, nil
	}
	s.remap = name == "DCGM_FI_DEV_ROW_REMAP_PENDING" && s.gpu >= 0
	if b, ok := thresholds[name]; ok && s.gpu >= 0 && t.label("GPU_I_ID") == "" {
		s.bounds = &b
	}
	kind, part := "", ""
	switch {
	case s.gpu >= 0:
		kind, part = schemas.KindGPU, "gpu"+strconv.FormatUint(index, 10)
	case t.label("nvswitch") != "":
		kind, part = schemas.KindNVSwitch, t.label("nvswitch")
	case t.label("cpu") != "":
		kind, part = schemas.KindCPU, "cpu"+strings.TrimPrefix(t.label("cpu"), "cpu")
	}
	var keep []string
	for _, l := range t.labels {
		if !slices.Contains(dropLabels, l.name) {
			keep = append(keep, l.name, l.value)
		}
	}
	s.ref = t.batch.Series(name, kind, part, keep...)
	t.known[key] = s
	return s, nil
}

// dropLabels are identity, which the inventory knows, and what would make a
// series of each message or pod.
var dropLabels = []string{
	"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION", "err_code", "err_msg",
	"pod", "namespace", "container", "hpc_job", "nvswitch", "cpu",
}

func (t *table) label(name string) string {
	for _, l := range t.labels {
		if l.name == name {
			return l.value
		}
	}
	return ""
}

func (t *table) parseLabels(s string) error {
	for {
		s = strings.TrimLeft(s, " ,")
		if s == "" {
			return nil
		}
		name, rest, ok := strings.Cut(s, "=")
		if !ok || len(rest) == 0 || rest[0] != '"' {
			return fmt.Errorf("no value at %.30q", s)
		}
		end := 1
		for ; end < len(rest) && rest[end] != '"'; end++ {
			if rest[end] == '\\' {
				end++
			}
		}
		if end >= len(rest) {
			return fmt.Errorf("value of %.30q does not end", name)
		}
		v := rest[1:end]
		if strings.Contains(v, `\`) {
			v = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(v)
		}
		t.labels = append(t.labels, label{strings.TrimSpace(name), v})
		s = rest[end+1:]
	}
}

func (t *table) gpuAt(index uint32, uuid, pci string) int {
	row := t.gpus.Row(index, time.Time{})
	if row == len(t.told) {
		t.told = append(t.told, told{pending: math.NaN()})
	}
	g := t.gpus.At(row)
	if uuid != "" {
		g.UUID = uuid
	}
	if pci != "" {
		g.PCI = pci
	}
	return row
}
