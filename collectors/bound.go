package collectors

import (
	"strings"
	"time"

	"auspex/schemas/auspexv1"
)

// Bounds of what a device may put into one event, in bytes and in number. An
// event within them fits every bus.
const (
	maxMessageText = 16 << 10
	maxAttrText    = 4 << 10
	maxListText    = 64 << 10 // of what a scheduler lists of a workload: 5,000 servers, say
	maxAttrs       = 64
	maxName        = 512
)

// lists are the attributes that name everything of a kind that a workload has.
var lists = map[string]bool{"nodes": true, "gpus": true, "pods": true}

// bound cuts the texts of an event to what stores and people can bear: valid
// UTF-8 without NUL, of bounded length.
func bound(ev *auspexv1.Event) {
	for _, f := range []struct {
		text  *string
		limit int
	}{
		{&ev.Id, maxName},
		{&ev.Source, maxName},
		{&ev.Resource, maxName},
		{&ev.Type, maxName},
		{&ev.Code, maxName},
		{&ev.Severity, maxName},
		{&ev.State, maxName},
		{&ev.Message, maxMessageText},
	} {
		*f.text = clip(*f.text, f.limit)
	}
	n := 0
	for k, v := range ev.Attrs {
		name := clip(k, maxName)
		if n++; n > maxAttrs || name != k {
			delete(ev.Attrs, k)
		}
		if n <= maxAttrs {
			limit, text := maxAttrText, v
			if lists[k] {
				limit, text = maxListText, whole(v)
			}
			if text = clip(text, limit); text != v || name != k {
				ev.Attrs[name] = text
			}
		}
	}
}

// whole is as much of a list as there is room for, without a part of an entry at its end.
func whole(list string) string {
	if len(list) <= maxListText {
		return list
	}
	return list[:max(0, strings.LastIndexByte(list[:maxListText+1], ','))]
}

func clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// compact returns the same samples with only the series and symbols that they
// refer to.
func compact(s *auspexv1.SampleColumns) *auspexv1.SampleColumns {
	out := &auspexv1.SampleColumns{Symbols: []string{""}, BaseTime: s.BaseTime, Delta: s.Delta, Value: s.Value}
	symbols, series := map[uint32]uint32{0: 0}, map[uint32]uint32{}
	symbol := func(i uint32) uint32 {
		j, ok := symbols[i]
		if !ok {
			j = uint32(len(out.Symbols)) //nolint:gosec // as many as there were
			symbols[i] = j
			out.Symbols = append(out.Symbols, s.Symbols[i])
		}
		return j
	}
	for _, ref := range s.Ref {
		to, ok := series[ref]
		if !ok {
			x := s.Series[ref]
			y := &auspexv1.Series{Metric: symbol(x.Metric), PartKind: symbol(x.PartKind), Part: symbol(x.Part)}
			for _, l := range x.Labels {
				y.Labels = append(y.Labels, symbol(l))
			}
			to = uint32(len(out.Series)) //nolint:gosec // as above
			series[ref] = to
			out.Series = append(out.Series, y)
		}
		out.Ref = append(out.Ref, to)
	}
	return out
}

// bucket says how long a device has to wait that says more than its rate; it
// holds burstSeconds of it. Rate 0 lets everything through. One goroutine uses it.
type bucket struct {
	rate  float64 // a second
	level float64 // of what was taken and has not run out
	at    time.Time
}

// burstSeconds is how much of its rate a device may say at once: a storm is no
// flood.
const burstSeconds = 20

func newBucket(rate int) bucket { return bucket{rate: float64(rate)} }

// take notes n things and returns how long to wait before the next.
func (b *bucket) take(n int) time.Duration {
	if b.rate <= 0 || n == 0 {
		return 0
	}
	now := time.Now()
	b.level = max(0, b.level-now.Sub(b.at).Seconds()*b.rate) + float64(n)
	b.at = now
	return time.Duration((b.level - burstSeconds*b.rate) / b.rate * float64(time.Second))
}
