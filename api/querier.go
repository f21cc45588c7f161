package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Querier evaluates PromQL over the hot window.
type Querier interface {
	// Instant evaluates at one time: a point a series.
	Instant(ctx context.Context, expr string, at time.Time) ([]Series, error)
	// Range evaluates at every step from start to end.
	Range(ctx context.Context, expr string, start, end time.Time, step time.Duration) ([]Series, error)
}

// Series is what one set of labels measured.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a value at a time in seconds since 1970.
type Point struct {
	T float64
	V float64
}

// NewQuerier asks a handler of the Prometheus HTTP API in this process, which
// serves prefix+"/api/v1/query" and "query_range".
func NewQuerier(h http.Handler, prefix string) Querier { return handlerQuerier{h, prefix} }

type handlerQuerier struct {
	h      http.Handler
	prefix string
}

func (q handlerQuerier) Instant(ctx context.Context, expr string, at time.Time) ([]Series, error) {
	return q.ask(ctx, "query", url.Values{"query": {expr}, "time": {seconds(at)}})
}

func (q handlerQuerier) Range(ctx context.Context, expr string, start, end time.Time, step time.Duration) ([]Series, error) {
	return q.ask(
		ctx, "query_range",
		url.Values{"query": {expr}, "start": {seconds(start)}, "end": {seconds(end)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)}},
	)
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

func (q handlerQuerier) ask(ctx context.Context, path string, form url.Values) ([]Series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, q.prefix+"/api/v1/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := &answerBuffer{header: make(http.Header), code: http.StatusOK}
	q.h.ServeHTTP(w, req)
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  *wirePoint        `json:"value"`
				Values []wirePoint       `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(w.body.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("query %s: status %d: %w", path, w.code, err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("query %s: %s", path, answer.Error)
	}
	out := make([]Series, 0, len(answer.Data.Result))
	for _, r := range answer.Data.Result {
		s := Series{Labels: r.Metric}
		if r.Value != nil {
			s.Points = []Point{Point(*r.Value)}
		}
		for _, v := range r.Values {
			s.Points = append(s.Points, Point(v))
		}
		out = append(out, s)
	}
	return out, nil
}

// answerBuffer is an http.ResponseWriter in memory.
type answerBuffer struct {
	header http.Header
	body   bytes.Buffer
	code   int
}

func (w *answerBuffer) Header() http.Header         { return w.header }
func (w *answerBuffer) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *answerBuffer) WriteHeader(code int)        { w.code = code }

// wirePoint is a point as the Prometheus HTTP API writes it: [seconds, "value"].
type wirePoint Point

func (p *wirePoint) UnmarshalJSON(b []byte) error {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if err := json.Unmarshal(pair[0], &p.T); err != nil {
		return err
	}
	var text string
	if err := json.Unmarshal(pair[1], &text); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("value %q: %w", text, err)
	}
	p.V = v
	return nil
}

// number returns nil for what JSON cannot hold.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func whole(v *float64) *int {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	n := int(math.Round(*v))
	return &n
}
