package prometheus

import (
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/index"
)

// Status is what a process says of itself below status/. The zero value says
// little, and nothing that is wrong.
type Status struct {
	Started   time.Time
	Retention time.Duration // of the store
	// Config returns the configuration in force as YAML; nil answers none.
	Config func() (string, error)
	// Reloaded says whether the last reload succeeded, and when the configuration
	// in force was read; nil is at the start.
	Reloaded func() (ok bool, at time.Time)
}

// secretIn finds passwords in addresses and in keyword strings.
var secretIn = regexp.MustCompile(`(://[^:@/\s]*:)[^@\s]+@|(?i)((?:password|secret|token)=)[^\s&'"]+`)

// Redact takes passwords out of addresses such as those of databases.
func Redact(text string) string {
	return secretIn.ReplaceAllStringFunc(text, func(found string) string {
		m := secretIn.FindStringSubmatch(found)
		if m[1] != "" {
			return m[1] + "<secret>@"
		}
		return m[2] + "<secret>"
	})
}

func (h *handler) configuration(*http.Request) result {
	text := ""
	if h.cfg.Status.Config != nil {
		var err error
		if text, err = h.cfg.Status.Config(); err != nil {
			return fail(errInternal, err)
		}
	}
	return result{data: map[string]string{"yaml": Redact(text)}}
}

// flags are Prometheus' own, as far as they have a meaning here; clients read the
// look-back and the retention from them.
func (h *handler) flags(*http.Request) result {
	return result{data: map[string]string{
		"query.lookback-delta":        flagDuration(h.cfg.LookbackDelta),
		"query.max-concurrency":       strconv.Itoa(h.cfg.MaxConcurrent),
		"query.max-samples":           strconv.Itoa(h.cfg.MaxSamples),
		"query.timeout":               flagDuration(h.cfg.Timeout),
		"storage.tsdb.retention.time": flagDuration(h.cfg.Status.Retention),
		"web.enable-admin-api":        "false",
		"web.enable-lifecycle":        "false",
	}}
}

func (h *handler) runtimeInfo(*http.Request) result {
	host, _ := os.Hostname()
	cwd, _ := os.Getwd()
	s := h.cfg.Status
	ok, read := true, s.Started
	if s.Reloaded != nil {
		ok, read = s.Reloaded()
	}
	return result{data: map[string]any{
		"startTime": s.Started.UTC(), "CWD": cwd, "hostname": host, "serverTime": h.now().UTC(), "reloadConfigSuccess": ok,
		"lastConfigTime":  read.UTC(),
		"corruptionCount": 0, "goroutineCount": runtime.NumGoroutine(), "GOMAXPROCS": runtime.GOMAXPROCS(0),
		"GOMEMLIMIT": debug.SetMemoryLimit(-1),
		"GOGC":       os.Getenv("GOGC"), "GODEBUG": os.Getenv("GODEBUG"), "storageRetention": flagDuration(s.Retention),
	}}
}

const (
	statTop = 10
	maxTop  = 1000
)

// tsdbStatus tells what takes the store's memory.
func (h *handler) tsdbStatus(r *http.Request) result {
	p := parameters{r: r}
	limit := p.limit()
	if p.bad != nil {
		return *p.bad
	}
	if limit == 0 || limit > maxTop {
		limit = statTop
	}
	type head struct {
		Series     uint64 `json:"numSeries"`
		LabelPairs int    `json:"numLabelPairs"`
		MinTime    int64  `json:"minTime"`
		MaxTime    int64  `json:"maxTime"`
	}
	type stat struct {
		Name  string `json:"name"`
		Value uint64 `json:"value"`
	}
	of := func(in []index.Stat) []stat {
		out := []stat{}
		for _, s := range in {
			out = append(out, stat{s.Name, s.Count})
		}
		return out
	}
	var now head
	found := &index.PostingsStats{}
	if store, ok := h.store.(interface{ Stats(limit int) *tsdb.Stats }); ok {
		s := store.Stats(limit)
		found = s.IndexPostingStats
		now = head{s.NumSeries, found.NumLabelPairs, s.MinTime, s.MaxTime}
	}
	return result{data: map[string]any{
		"headStats": now, "seriesCountByMetricName": of(found.CardinalityMetricsStats),
		"labelValueCountByLabelName": of(found.CardinalityLabelStats),
		"memoryInBytesByLabelName":   of(found.LabelValueStats), "seriesCountByLabelValuePair": of(found.LabelValuePairsStats),
	}}
}

// flagDuration writes a duration as Prometheus writes its flags.
func flagDuration(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }
