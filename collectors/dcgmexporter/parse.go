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
	key       string // the line up to its value
	column    int    // index into schemas.GPUMetrics, or -1
	gpu       int    // row of table.gpus, or -1
	uuid, pci string // of the GPU
	ref       collectors.Ref
	reads     bool // as [told]
	remap     bool // DCGM_FI_DEV_ROW_REMAP_PENDING
	// bounds is set where the line is a threshold of another metric, of a part.
	bounds *threshold
	part   string
}

// told is what a GPU told beside its columns in this scrape.
type told struct {
	reads   bool // something that is no counter: the driver remembers those of a GPU that is gone
	pending float64
}

// table holds one host's scrape. It is filled again for each scrape; the names
// of known series are found without allocation, and without a look where the lines
// come in the order of the scrape before.
type table struct {
	known  map[string]*series
	page   []*series // of the lines of the last scrape, in order
	gpus   collectors.GPUs
	told   []told // by row
	batch  *collectors.Batch
	fresh  func() *collectors.Batch
	since  time.Time // of the first series
	labels []label
}

type label struct{ name, value string }

func newTable(fresh func() *collectors.Batch) *table {
	return &table{known: make(map[string]*series), batch: fresh(), fresh: fresh}
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
		t.page, t.batch, t.since = nil, t.fresh(), now
	}
}

// parse reads an exposition (Prometheus text format 0.0.4). It returns how many
// samples it has taken, how many lines it could not read, and the first reason.
func (t *table) parse(body []byte, now time.Time) (samples, bad int, first error) {
	t.reset(now)
	next := 0 // of the lines of the last scrape
	for len(body) > 0 {
		var s *series
		if next < len(t.page) && t.page[next].begins(body) {
			s = t.page[next]
			if v, n := number(body[len(s.key)+1:]); n > 0 {
				t.take(s, v, now)
				body, next, samples = body[len(s.key)+1+n:], next+1, samples+1
				continue
			}
		}
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
		s, err := t.line(line, s, now)
		if err != nil {
			if bad++; first == nil {
				first = err
			}
			continue
		}
		samples++
		if next < len(t.page) {
			t.page[next] = s
		} else if next < maxSeries {
			t.page = append(t.page, s)
		}
		next++
	}
	t.page = t.page[:min(next, len(t.page))]
	return samples, bad, first
}

// begins reports whether a page goes on with a line of the series.
func (s *series) begins(page []byte) bool {
	n := len(s.key)
	return len(page) > n && page[n] == ' ' && string(page[:n]) == s.key
}

// exact are the powers of ten that a float64 has exactly.
var exact = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// number reads what a line ends with, if that is a plain decimal number whose digits a float64 has exactly: its quotient by
// a power of ten is the nearest float64 then, as strconv has it (Clinger, How to read floating point numbers accurately,
// 1990). It returns how many bytes that took, the end of the line included; 0 is anything else.
func number(b []byte) (v float64, n int) {
	const digits, whole = 18, 1 << 53
	var mantissa uint64
	i, point, minus := 0, -1, false
	if len(b) > 0 && b[0] == '-' {
		i, minus = 1, true
	}
	start := i
	for ; i < len(b) && b[i] != '\n'; i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9':
			mantissa = mantissa*10 + uint64(c-'0')
		case c == '.' && point < 0:
			point = i
		default:
			return 0, 0
		}
		if i-start > digits {
			return 0, 0
		}
	}
	count, behind := i-start, 0
	if point >= 0 {
		count, behind = count-1, i-point-1
	}
	if count == 0 || mantissa > whole {
		return 0, 0
	}
	v = float64(mantissa) / exact[behind]
	if minus {
		v = -v
	}
	return v, min(i+1, len(b))
}

// line takes a line without its end; its series is nil where it is not known yet.
func (t *table) line(line []byte, s *series, now time.Time) (*series, error) {
	var end int
	if s != nil && len(line) > len(s.key) {
		end = len(s.key)
	} else {
		s, end = nil, keyEnd(line)
	}
	if end <= 0 {
		return nil, fmt.Errorf("line %.60q has no value", line)
	}
	key, rest := line[:end], bytes.TrimLeft(line[end:], " \t")
	num, stamp, _ := bytes.Cut(rest, []byte{' '})
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(num), len(num)), 64) // not kept
	if err != nil || len(num) == 0 {
		if bytes.IndexByte(num, ',') > 0 {
			return nil, fmt.Errorf("value %.40q of %.60q has a decimal comma", num, key)
		}
		return nil, fmt.Errorf("value %.40q of %.60q is not a number", num, key)
	}
	at := now
	if len(stamp) > 0 {
		ms, err := strconv.ParseInt(string(bytes.TrimSpace(stamp)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("time %.40q of %.60q is not a number", stamp, key)
		}
		at = time.UnixMilli(ms)
	}
	if s == nil {
		if s = t.known[string(key)]; s == nil {
			if s, err = t.learn(string(key)); err != nil {
				return nil, err
			}
			t.known[s.key] = s
		}
	}
	t.take(s, v, at)
	return s, nil
}

// take takes a value of a series.
func (t *table) take(s *series, v float64, at time.Time) {
	t.identify(s) // another GPU may be in its place
	if blank(v) {
		return
	}
	if s.gpu >= 0 {
		t.gpus.Seen(s.gpu, at)
		if s.reads {
			t.told[s.gpu].reads = true
		}
	}
	if s.column >= 0 {
		t.gpus.Set(s.gpu, s.column, at, v)
		return
	}
	if s.remap {
		t.told[s.gpu].pending = v
	}
	t.batch.Sample(s.ref, at, v)
	if s.bounds != nil && v > 0 && v < s.bounds.below {
		t.batch.ThresholdsOf(s.bounds.metric, schemas.KindGPU, s.part, at, collectors.Threshold{Bound: s.bounds.bound, Value: v})
	}
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
func (t *table) learn(key string) (*series, error) {
	if len(t.known) >= maxSeries {
		return nil, errTooMany
	}
	name, rest, has := strings.Cut(key, "{")
	t.labels = t.labels[:0]
	if has {
		if err := t.parseLabels(strings.TrimSuffix(rest, "}")); err != nil {
			return nil, fmt.Errorf("labels of %.60q: %w", key, err)
		}
	}
	s := &series{key: key, column: -1, gpu: -1}
	index, err := strconv.ParseUint(t.label("gpu"), 10, 16)
	if err == nil {
		if index >= collectors.MaxGPUs {
			return nil, fmt.Errorf("GPU %d: a host has at most %d", index, collectors.MaxGPUs)
		}
		s.gpu, s.uuid, s.pci = t.gpuAt(uint32(index)), t.label("UUID"), gpuwatch.PCI(t.label("pci_bus_id"))
		if g := t.gpus.At(s.gpu); g.UUID == s.uuid && g.PCI == s.pci { // equal strings in one place are compared by that
			s.uuid, s.pci = g.UUID, g.PCI
		}
	}
	if c, ok := columnOf(name); ok && s.gpu >= 0 && t.label("GPU_I_ID") == "" {
		s.column, s.reads = c, !schemas.GPUMetrics[c].Counter && !remembered[c]
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
	s.ref, s.part = t.batch.Series(name, kind, part, keep...), part
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

func (t *table) gpuAt(index uint32) int {
	row := t.gpus.Row(index, time.Time{})
	if row == len(t.told) {
		t.told = append(t.told, told{pending: math.NaN()})
	}
	return row
}

// identify names the GPU of a series as the series does.
func (t *table) identify(s *series) {
	if s.gpu < 0 {
		return
	}
	g := t.gpus.At(s.gpu)
	if s.uuid != "" && g.UUID != s.uuid {
		g.UUID = s.uuid
	}
	if s.pci != "" && g.PCI != s.pci {
		g.PCI = s.pci
	}
}
