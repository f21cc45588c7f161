package syslog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"auspex/internal/decode/kernlog"
)

const (
	// journalType is what systemd-journal-upload sends (systemd, Journal Export Formats).
	journalType = "application/vnd.fdo.journal"
	// progressIn is how long an upload may stand still.
	progressIn = 5 * time.Minute
	// readyIn is how long an upload waits for the collectors of its servers to start.
	readyIn       = 10 * time.Second
	fabricManager = "nvidia-fabricmanager"
)

// listenJournal serves uploads of journals.
func (r *receiver) listenJournal(ctx context.Context, addr string) (func() error, error) {
	l, config, err := r.listen(ctx, addr, r.cfg.Journal)
	if err != nil {
		return nil, err
	}
	var uploads sync.WaitGroup
	mux := http.NewServeMux()
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, q *http.Request) {
		uploads.Add(1)
		defer uploads.Done()
		r.upload(w, q)
	})
	srv := &http.Server{
		Handler: mux, TLSConfig: config, ReadHeaderTimeout: handshakeIn, IdleTimeout: progressIn, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(complaints{r.log.Handler(), r}, slog.LevelDebug),
	}
	return func() error {
		stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
		defer stop()
		defer uploads.Wait()
		if config != nil {
			return srv.ServeTLS(l, "", "")
		}
		return srv.Serve(l)
	}, nil
}

// upload reads one request. It is answered when all that it held is durable: who uploads keeps its
// position after that alone, and sends again what was not answered.
func (r *receiver) upload(w http.ResponseWriter, q *http.Request) {
	if kind, _, _ := mime.ParseMediaType(q.Header.Get("Content-Type")); kind != journalType {
		http.Error(w, "send a journal in its export format: "+journalType, http.StatusUnsupportedMediaType)
		return
	}
	ctx := q.Context()
	var names []string
	if q.TLS != nil {
		names = namesOf(*q.TLS)
	}
	tcp, err := net.ResolveTCPAddr("tcp", q.RemoteAddr) // an address, which is not looked up
	if err != nil {
		http.Error(w, "cannot tell who sends", http.StatusBadRequest)
		return
	}
	o := r.from(addrOf(tcp), names)
	defer r.begin(o)()
	control := http.NewResponseController(w)
	body := &progressing{q.Body, func() { _ = control.SetReadDeadline(time.Now().Add(progressIn)) }}
	journal := kernlog.NewJournal(bufio.NewReaderSize(body, chunk), false)
	touched := map[*host]bool{}
	for err == nil {
		var rec kernlog.Record
		rec, err = journal.Next()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.Is(err, kernlog.ErrEntry):
			r.m.lines[overJournal].Inc()
			r.m.left[overJournal][malformed].Inc()
			err = nil
		case err == nil:
			err = r.entry(ctx, o, rec, touched)
		}
	}
	if !errors.Is(err, io.EOF) {
		if ctx.Err() == nil {
			r.tell("upload "+o.String(), "an upload of a journal broke off; its sender will send it again", "sender", o.String(), "error", err)
		}
		http.Error(w, "the upload was not read to its end", http.StatusServiceUnavailable)
		return
	}
	for h := range touched {
		if err := h.commit(ctx); err != nil {
			http.Error(w, "not durable yet; send again", http.StatusServiceUnavailable)
			return
		}
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "OK.\n")
}

// complaints are what the HTTP server says of connections.
type complaints struct {
	slog.Handler
	r *receiver
}

// Enabled implements [slog.Handler]: also what is not logged is counted.
func (complaints) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (c complaints) Handle(ctx context.Context, said slog.Record) error {
	if strings.Contains(said.Message, "TLS handshake error") {
		c.r.m.refused.WithLabelValues("tls").Inc()
	}
	c.r.log.DebugContext(ctx, "upload of a journal", "problem", said.Message)
	return nil
}

// progressing notes each time that something was read.
type progressing struct {
	io.Reader
	note func()
}

// Read implements [io.Reader].
func (p *progressing) Read(b []byte) (int, error) {
	p.note()
	return p.Reader.Read(b)
}

// entry takes in one entry of a journal.
func (r *receiver) entry(ctx context.Context, o *origin, rec kernlog.Record, touched map[*host]bool) error {
	r.m.lines[overJournal].Inc()
	now := r.settings.Now()
	h, why := r.whose(o, rec.Host)
	if h == nil {
		r.m.left[overJournal][why].Inc()
		return nil
	}
	h.heard.Store(now.Unix())
	if err := h.await(ctx); err != nil {
		return err
	}
	touched[h] = true
	if err := r.slow(ctx, o, now); err != nil {
		return err
	}
	h.journal.Lock()
	defer h.journal.Unlock()
	source, sequence, numbered := parseCursor(rec.Cursor)
	again := numbered && source == h.at.source && sequence <= h.at.sequence
	if again {
		r.m.left[overJournal][known].Inc()
	}
	next := h.at
	if numbered && !again {
		next.source, next.sequence = source, sequence
	}
	unit := rec.Unit
	switch {
	case unit == "kernel", unit == "systemd": // that the latter is process 1, journald has looked up
	case rec.Service == fabricManager+".service":
		unit = fabricManager
	default:
		h.at = next
		return nil
	}
	if unit == "kernel" {
		r.m.kernel[overJournal].Inc()
	}
	if !again && rec.BootID != "" && rec.BootID != next.boot {
		if next.boot != "" {
			h.entries.Observed()
		}
		next.boot, next.shutdown = rec.BootID, false
	}
	evs := h.entries.Message(unit, rec.Text) // of known entries too: the parser learns from them
	if again {
		return nil
	}
	next.shutdown = h.entries.ShuttingDown()
	if len(evs) > 0 && !rec.Undated && !rec.Time.IsZero() && now.Sub(rec.Time) > r.cfg.JournalAge {
		r.m.left[overJournal][tooOld].Inc()
		evs = nil
	}
	if len(evs) > 0 {
		at := rec.Time
		if at.IsZero() {
			at = now
		}
		h.stamp(evs, at, now, "journal", rec.Cursor, rec.Text)
		for i := range evs {
			evs[i].SetAttr("boot_id", rec.BootID)
		}
		select {
		case h.queue <- item{events: evs}:
		case <-ctx.Done(): // the position stays where it was: the entry comes again
			return ctx.Err()
		}
	}
	h.at = next
	return nil
}

// await waits until the position of a server's journal is known.
func (h *host) await(ctx context.Context) error {
	select {
	case <-h.ready:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	select {
	case <-h.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the collector of %s has not started: %w", h.id, ctx.Err())
	}
}

// commit returns when all that was put in before is durable, with the position.
func (h *host) commit(ctx context.Context) error {
	h.journal.Lock()
	at := h.at
	h.journal.Unlock()
	done := make(chan struct{})
	select {
	case h.queue <- item{at: &at, done: done}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
