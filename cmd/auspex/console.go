package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// console writes a line to standard output for each thing that a person should
// know of: faults of the simulator, incidents, predictions and actions.
type console struct {
	out io.Writer
	log *slog.Logger
	mu  sync.Mutex
	// printed is what was said of a record: a line comes only when the words change,
	// and of an incident that grows at most every calm.
	printed map[string]printed
	held    map[string]line // the newest words about what was told a moment ago
}

type line struct {
	at         time.Time
	kind, text string
}

type printed struct {
	text string
	at   time.Time
}

// calm is how often a revision of the same incident is emitted.
const calm = 10 * time.Second

func newConsole(out io.Writer, log *slog.Logger) *console {
	return &console{out: out, log: log, printed: map[string]printed{}, held: map[string]line{}}
}

// emit writes a line once for each text of an id.
func (c *console) emit(id string, l line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, id)
	if c.printed[id].text == l.text {
		return
	}
	c.printed[id] = printed{l.text, time.Now()}
	fmt.Fprintf(c.out, "%s  %-10s  %s\n", l.at.UTC().Format(time.TimeOnly), l.kind, l.text)
}

// revise emits a new text of an id at once when the last one is calm old, and
// later otherwise.
func (c *console) revise(id string, l line) {
	c.mu.Lock()
	last, known := c.printed[id]
	if known && time.Since(last.at) < calm {
		c.held[id] = l
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.emit(id, l)
}

// flush emits what was held back long enough.
func (c *console) flush() {
	c.mu.Lock()
	due := map[string]line{}
	for id, l := range c.held {
		if time.Since(c.printed[id].at) >= calm {
			due[id] = l
		}
	}
	c.mu.Unlock()
	for id, l := range due {
		c.emit(id, l)
	}
}

// component follows the bus from now on.
func (c *console) component(b func() bus.Bus) run.Component {
	return run.Func("console", func(ctx context.Context, ready func()) error {
		topics := map[string]func([]byte) error{
			schemas.TopicIncidents:   c.incident,
			schemas.TopicPredictions: c.prediction,
			schemas.TopicOutcomes:    c.action,
		}
		errs := make(chan error, len(topics))
		for topic, show := range topics {
			go func() {
				sub := bus.Subscription{Topic: topic, Group: "console", FromNewest: true}
				errs <- bus.Follow(ctx, b(), sub, c.log, func(_ context.Context, msgs []bus.Message) error {
					for _, m := range msgs {
						_ = show(m.Value) // an unreadable record is counted where it is used
					}
					return nil
				})
			}()
		}
		ready()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var err error
		for left := len(topics); left > 0; {
			select {
			case e := <-errs:
				left--
				err = errors.Join(err, e)
			case <-tick.C:
				c.flush()
			}
		}
		return err
	})
}

func (c *console) incident(v []byte) error {
	var i schemas.Incident
	if err := json.Unmarshal(v, &i); err != nil {
		return err
	}
	if i.RootCause.Fault == "unknown" || i.RootCause.Fault == "" {
		return nil
	}
	switch {
	case i.MergedInto != "":
		c.emit(i.ID, line{i.Updated, "incident", fmt.Sprintf("%s is part of %s", i.ID, i.MergedInto)})
	case i.Closed != nil:
		c.emit(i.ID, line{*i.Closed, "closed", i.RootCause.Resource + " " + i.RootCause.Fault})
	default:
		events := "events"
		if i.Count() == 1 {
			events = "event"
		}
		c.revise(i.ID, line{i.Updated, "incident", fmt.Sprintf("%s %s: %s (%.0f %%, %d %s)",
			i.RootCause.Resource, i.RootCause.Fault, firstSentence(i.Explanation), 100*i.RootCause.Confidence, i.Count(), events)})
	}
	return nil
}

func (c *console) prediction(v []byte) error {
	var p schemas.Prediction
	if err := json.Unmarshal(v, &p); err != nil {
		return err
	}
	text := p.Explanation
	if p.State != schemas.PredictionOpen {
		text = fmt.Sprintf("%s of %s: %s", p.Metric, p.Resource, strings.ReplaceAll(p.State, "_", " "))
	}
	c.revise(p.ID, line{p.Time, "prediction", text})
	return nil
}

func (c *console) action(v []byte) error {
	var a schemas.Action
	if err := json.Unmarshal(v, &a); err != nil {
		return err
	}
	on := a.Server
	if on == "" {
		on = a.Target
	}
	held := 0
	for _, r := range a.Rails {
		if r.OK {
			held++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s on %s: %s, %d of %d rails hold", a.Mode, a.Kind, on, a.State, held, len(a.Rails))
	for _, more := range []string{a.Detail, a.VerifiedBy} {
		if more != "" {
			text.WriteString("; " + more)
		}
	}
	c.emit(a.ID, line{a.Time, "action", text.String()})
	return nil
}

func firstSentence(s string) string {
	if head, _, ok := strings.Cut(s, ". "); ok {
		s = head
	}
	return strings.TrimSuffix(s, ".")
}

// faults follows the simulator's ledger from an offset.
func (c *console) faults(name string, from int64) run.Component {
	return run.Func("faults", func(ctx context.Context, ready func()) error {
		ready()
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("follow the simulator: %w", err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return fmt.Errorf("follow the simulator: %w", err)
		}
		r := bufio.NewReader(f)
		var line []byte
		for {
			part, err := r.ReadBytes('\n')
			line = append(line, part...)
			if err == nil {
				c.fault(line)
				line = line[:0]
				continue
			}
			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("follow the simulator: %w", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
}

func (c *console) fault(text []byte) {
	var e ledger.Entry
	if json.Unmarshal(text, &e) != nil || e.Kind != ledger.KindFault {
		return
	}
	verb := "injected"
	if e.Type == "end" {
		verb = "ended"
	}
	on := strings.Join(e.Targets, ", ")
	if len(e.Targets) > 3 {
		on = fmt.Sprintf("%s and %d more", strings.Join(e.Targets[:3], ", "), len(e.Targets)-3)
	}
	what := fmt.Sprintf("%s on %s (%s)", e.Code, on, verb)
	c.emit("fault/"+e.Time.String()+what, line{e.Time, "fault", what})
}
