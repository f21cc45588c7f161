// Package jetstream is the embedded bus: a NATS server in the process, without a
// listener, that keeps each partition of a topic as a JetStream file stream.
// Positions of groups are the last message of a subject each, in a stream of
// their own. Readers use batched direct gets (NATS ADR-31), so that a reader that
// stops for hours keeps no state in the server and loses nothing but what
// retention removes.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/schemas"
)

// Retention bounds what a topic keeps. Zero means no bound.
type Retention struct {
	Bytes int64         `yaml:"bytes"` // over all partitions
	Age   time.Duration `yaml:"age"`
}

// Config says where and how the bus keeps its messages.
type Config struct {
	Dir        string `yaml:"dir"`
	Partitions int    `yaml:"partitions"`
	// SyncInterval is how often files are synced to the disk: what a power loss
	// may cost. A crash of the process alone costs nothing that was acknowledged.
	SyncInterval time.Duration `yaml:"sync_interval"`
	// SyncAlways syncs before each acknowledgement.
	SyncAlways      bool                 `yaml:"sync_always"`
	MaxMessageBytes int                  `yaml:"max_message_bytes"` // of one message, at most 64 MiB
	PublishTimeout  time.Duration        `yaml:"publish_timeout"`
	Default         Retention            `yaml:"default_retention"`
	Retention       map[string]Retention `yaml:"retention"` // by topic

	Log     *slog.Logger          `yaml:"-"`
	Metrics prometheus.Registerer `yaml:"-"`
}

// DefaultConfig keeps 2 GiB of telemetry and a week of everything else, in four
// partitions, synced every second.
func DefaultConfig() Config {
	return Config{
		Partitions: 4, SyncInterval: time.Second, MaxMessageBytes: 4 << 20, PublishTimeout: 30 * time.Second,
		Default: Retention{Bytes: 1 << 30, Age: 7 * 24 * time.Hour},
		Retention: map[string]Retention{
			schemas.TopicTelemetry: {Bytes: 2 << 30, Age: 24 * time.Hour},
		},
	}
}

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return errors.New("bus: dir is required")
	case c.Partitions < 1 || c.Partitions > 1024:
		return fmt.Errorf("bus: partitions: want 1 to 1024, got %d", c.Partitions)
	case !c.SyncAlways && c.SyncInterval <= 0:
		return fmt.Errorf("bus: sync_interval: want more than 0, or sync_always, got %s", c.SyncInterval)
	case c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > 64<<20:
		return fmt.Errorf("bus: max_message_bytes: want 1 KiB to 64 MiB, got %d", c.MaxMessageBytes)
	case c.PublishTimeout <= 0:
		return fmt.Errorf("bus: publish_timeout is %s; it must be positive", c.PublishTimeout)
	}
	return nil
}

const (
	positionsStream  = "positions"
	positionsSubject = "position"
	keyHeader        = "Auspex-Key"

	// inFlight bounds the unacknowledged messages of the bus, callFlight those of
	// one Publish call.
	inFlight   = 2048
	callFlight = 64

	// fetchBytes bounds one direct get; a message that is larger comes alone.
	fetchBytes = 4 << 20

	maxMemory = 64 << 20
	maxStore  = 1 << 50

	startTimeout = 30 * time.Second
	readTimeout  = 30 * time.Second
)

// Bus is an embedded JetStream.
type Bus struct {
	cfg     Config
	log     *slog.Logger
	metrics *bus.Metrics
	server  *server.Server
	conn    *nats.Conn // publishes and manages
	js      jetstream.JetStream
	slots   chan struct{}

	mu     sync.Mutex
	topics map[string][]*partition
	done   chan struct{}
	once   sync.Once
	unlock func()

	broken atomic.Bool // files could not be written
	healer sync.WaitGroup
	heals  prometheus.Counter
}

type partition struct {
	stream  string
	subject string

	mu    sync.Mutex
	grown chan struct{} // closed at the next publish
}

func (p *partition) watch() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grown
}

func (p *partition) notify() {
	p.mu.Lock()
	close(p.grown)
	p.grown = make(chan struct{})
	p.mu.Unlock()
}

var _ bus.Bus = (*Bus)(nil)

// Open starts the server on the files of cfg.Dir and recovers what they hold.
func Open(ctx context.Context, cfg Config) (*Bus, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open bus: %w", err)
	}
	unlock, err := lock(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open bus in %s: %w", cfg.Dir, err)
	}
	if err := samePartitions(filepath.Join(cfg.Dir, "partitions"), cfg.Partitions); err != nil {
		unlock()
		return nil, fmt.Errorf("open bus in %s: %w", cfg.Dir, err)
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "auspex", JetStream: true, StoreDir: cfg.Dir, DontListen: true, NoSigs: true,
		MaxPayload: int32(cfg.MaxMessageBytes + 4<<10), //nolint:gosec // at most 64 MiB
		MaxPending: 256 << 20, SyncInterval: cfg.SyncInterval, SyncAlways: cfg.SyncAlways,
		// Streams are bounded one by one; the sum is not reserved.
		JetStreamMaxMemory: maxMemory, JetStreamMaxStore: maxStore,
	})
	if err != nil {
		unlock()
		return nil, fmt.Errorf("open bus: %w", err)
	}
	b := &Bus{
		cfg: cfg, log: cfg.Log, metrics: bus.NewMetrics(cfg.Metrics), server: s,
		slots: make(chan struct{}, inFlight), topics: map[string][]*partition{}, done: make(chan struct{}), unlock: unlock,
		heals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_bus_reopened_total", Help: "Reopenings of the files of the bus after a failed write.",
		}),
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(b.heals)
	}
	s.SetLoggerV2(serverLog{b}, false, false, false)
	s.Start()
	b.healer.Go(b.heal)
	if err := b.connect(ctx); err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("open bus in %s: %w", cfg.Dir, err)
	}
	return b, nil
}

// samePartitions notes the number of partitions, and refuses another one later:
// keys would change their partition, and their order be lost.
func samePartitions(path string, want int) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return os.WriteFile(path, []byte(strconv.Itoa(want)+"\n"), 0o600)
	}
	if err != nil {
		return err
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if have != want {
		return fmt.Errorf(
			"topics have %d partitions, the configuration has %d; set bus.partitions back, or delete the folder with its data", have,
			want,
		)
	}
	return nil
}

func (b *Bus) connect(ctx context.Context) error {
	if !b.server.ReadyForConnections(startTimeout) {
		return errors.New("the embedded server did not start")
	}
	if !b.server.JetStreamEnabled() {
		return errors.New("the embedded server has no storage; is the disk full or read-only?")
	}
	conn, err := b.dial()
	if err != nil {
		return err
	}
	b.conn = conn
	if b.js, err = jetstream.New(
		conn, jetstream.WithPublishAsyncMaxPending(2*inFlight), jetstream.WithPublishAsyncTimeout(b.cfg.PublishTimeout),
	); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, err = b.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: positionsStream, Subjects: []string{positionsSubject + ".>"}, Storage: jetstream.FileStorage,
		MaxMsgsPerSubject: 1, AllowDirect: true,
	})
	return err
}

func (b *Bus) dial() (*nats.Conn, error) {
	conn, err := nats.Connect("", nats.InProcessServer(b.server), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn("embedded bus connection", "error", err)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded server: %w", err)
	}
	return conn, nil
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// topic returns the partitions of a topic and makes its streams at first use.
func (b *Bus) topic(ctx context.Context, name string) ([]*partition, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
		return nil, bus.ErrClosed
	default:
	}
	if ps := b.topics[name]; ps != nil {
		return ps, nil
	}
	if !topicName.MatchString(name) || name == positionsStream {
		return nil, fmt.Errorf("invalid topic name %q", name)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r, ok := b.cfg.Retention[name]
	if !ok {
		r = b.cfg.Default
	}
	perPartition := int64(-1)
	if r.Bytes > 0 {
		perPartition = max(r.Bytes/int64(b.cfg.Partitions), 1<<20)
	}
	var ps []*partition
	for p := range b.cfg.Partitions {
		part := &partition{stream: streamName(name, p), subject: "topic." + name + "." + strconv.Itoa(p), grown: make(chan struct{})}
		_, err := b.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: part.stream, Subjects: []string{part.subject}, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
			MaxBytes: perPartition, MaxAge: r.Age, AllowDirect: true,
			Duplicates: min(positive(r.Age), 2*time.Minute),
		})
		if err != nil {
			return nil, fmt.Errorf("open topic %s: %w", name, err)
		}
		ps = append(ps, part)
	}
	b.topics[name] = ps
	return ps, nil
}

func positive(d time.Duration) time.Duration {
	if d <= 0 {
		return 2 * time.Minute
	}
	return d
}

func streamName(topic string, p int) string { return topic + "-" + strconv.Itoa(p) }

// Publish appends the messages and returns when the server has written them all
// (and synced them, with sync_always). An error says that this is not known of
// all of them.
func (b *Bus) Publish(ctx context.Context, msgs ...bus.Message) (err error) {
	start := time.Now()
	defer func() { b.metrics.Published(msgs, start, err) }()
	if b.broken.Load() {
		return b.unwritable()
	}
	for i := range msgs {
		if n := len(msgs[i].Value) + len(msgs[i].Key); n > b.cfg.MaxMessageBytes {
			return fmt.Errorf("publish to %s: %d bytes, limit %d: %w", msgs[i].Topic, n, b.cfg.MaxMessageBytes, bus.ErrTooLarge)
		}
	}
	var flying []flight
	defer func() {
		// A message whose acknowledgement nobody waits for any more may be stored.
		for _, f := range flying {
			b.release(f.ack)
			f.p.notify()
		}
	}()
	for i := range msgs {
		m := &msgs[i]
		ps, err := b.topic(ctx, m.Topic)
		if err != nil {
			return fmt.Errorf("publish to %s: %w", m.Topic, err)
		}
		p := ps[bus.PartitionFor(m.Key, len(ps))]
		for {
			if len(flying) < callFlight {
				select {
				case b.slots <- struct{}{}:
				default:
					if len(flying) == 0 {
						select {
						case b.slots <- struct{}{}:
						case <-b.done:
							return fmt.Errorf("publish to %s: %w", m.Topic, bus.ErrClosed)
						case <-ctx.Done():
							return fmt.Errorf("publish to %s: %w", m.Topic, ctx.Err())
						}
						break
					}
					if flying, err = b.land(ctx, flying); err != nil {
						return err
					}
					continue
				}
				break
			}
			if flying, err = b.land(ctx, flying); err != nil {
				return err
			}
		}
		ack, err := b.js.PublishMsgAsync(&nats.Msg{Subject: p.subject, Data: m.Value, Header: nats.Header{keyHeader: {m.Key}}})
		if err != nil {
			<-b.slots
			return fmt.Errorf("publish to %s: %w", m.Topic, b.closedOr(err))
		}
		flying = append(flying, flight{p, ack})
	}
	for len(flying) > 0 {
		if flying, err = b.land(ctx, flying); err != nil {
			return err
		}
	}
	return nil
}

type flight struct {
	p   *partition
	ack jetstream.PubAckFuture
}

// land waits for the oldest acknowledgement.
func (b *Bus) land(ctx context.Context, flying []flight) ([]flight, error) {
	f := flying[0]
	select {
	case <-f.ack.Ok():
	case err := <-f.ack.Err():
		<-b.slots
		f.p.notify()
		if !errors.Is(err, nats.ErrConnectionClosed) {
			b.broken.Store(true)
		}
		return flying[1:], fmt.Errorf("publish to %s: %w", f.p.stream, b.closedOr(err))
	case <-b.done:
		return flying, fmt.Errorf("publish to %s: %w", f.p.stream, bus.ErrClosed)
	case <-ctx.Done():
		return flying, fmt.Errorf("publish to %s: %w", f.p.stream, ctx.Err())
	}
	<-b.slots
	f.p.notify()
	return flying[1:], nil
}

// release frees the slot of a message that is still on its way when it arrives.
func (b *Bus) release(ack jetstream.PubAckFuture) {
	go func() { // ends at the latest with publish_timeout or Close
		select {
		case <-ack.Ok():
		case <-ack.Err():
		case <-b.done:
		}
		<-b.slots
	}()
}

func (b *Bus) closedOr(err error) error {
	select {
	case <-b.done:
		return bus.ErrClosed
	default:
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		return bus.ErrClosed
	}
	if b.broken.Load() || !b.server.JetStreamEnabled() { // the server gives up on storage that fails
		return fmt.Errorf("%w %w", b.unwritable(), err)
	}
	return err
}

func (b *Bus) unwritable() error {
	return fmt.Errorf("the bus cannot write to %s; is the disk full?", b.cfg.Dir)
}

const (
	// healInterval is how often files that could not be written are tried.
	healInterval = time.Second
	// healSpace is what must be free before they are opened again, in bytes.
	healSpace = 1 << 20
)

// heal opens the files again when they can be written: the server gives a stream
// up for good when one write of it has failed.
func (b *Bus) heal() {
	t := time.NewTicker(healInterval)
	defer t.Stop()
	for {
		select {
		case <-b.done:
			return
		case <-t.C:
		}
		if b.server.JetStreamEnabled() && !b.broken.Load() || !b.writable() {
			continue
		}
		err := b.server.ShutdownJetStream()
		if err == nil {
			err = b.server.EnableJetStream(&server.JetStreamConfig{
				StoreDir: b.cfg.Dir, SyncInterval: b.cfg.SyncInterval, SyncAlways: b.cfg.SyncAlways, MaxMemory: maxMemory, MaxStore: maxStore,
				Strict: true,
			})
		}
		if err != nil {
			b.log.Error("cannot reopen the files of the bus", "dir", b.cfg.Dir, "error", err)
			continue
		}
		b.broken.Store(false)
		b.heals.Inc()
		b.log.Warn("bus writes again", "dir", b.cfg.Dir)
	}
}

// writable tries the disk.
func (b *Bus) writable() bool {
	name := filepath.Join(b.cfg.Dir, "probe")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_, err = f.Write(make([]byte, healSpace))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(name)) == nil
}

// Partitions returns the number of partitions.
func (b *Bus) Partitions(context.Context, string) (int, error) { return b.cfg.Partitions, nil }

// Subscribe reads a topic.
func (b *Bus) Subscribe(ctx context.Context, sub bus.Subscription, handle bus.Handler) error {
	ps, err := b.topic(ctx, sub.Topic)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", sub.Topic, err)
	}
	conn, err := b.dial()
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", sub.Topic, b.closedOr(err))
	}
	defer conn.Close()
	l := &topicLog{b: b, name: sub.Topic, ps: ps, conn: conn, readers: map[int]*reader{}}
	return bus.Read(ctx, l, sub, b.metrics, b.log, handle)
}

// Close ends subscriptions with [bus.ErrClosed], and returns when the files are
// written and closed.
func (b *Bus) Close() error {
	b.once.Do(func() {
		close(b.done)
		b.healer.Wait()
		if b.conn != nil {
			b.conn.Close()
		}
		b.server.Shutdown()
		b.server.WaitForShutdown()
		b.unlock()
	})
	return nil
}

// serverLog passes what the server complains about on, and learns from it that
// files cannot be written: each message that cannot is one complaint more.
type serverLog struct{ b *Bus }

func (serverLog) Noticef(string, ...any) {}
func (serverLog) Debugf(string, ...any)  {}
func (serverLog) Tracef(string, ...any)  {}

// Warnf implements server.LoggerV2.
func (l serverLog) Warnf(format string, args ...any) {
	l.b.log.Warn("embedded bus server", "message", fmt.Sprintf(format, args...))
}

// Errorf implements server.LoggerV2.
func (l serverLog) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if l.b.broken.Load() {
		l.b.log.Debug("embedded bus server", "message", text)
		return
	}
	if strings.Contains(text, "ritical write error") || strings.Contains(text, "failed to store a msg") {
		l.b.broken.Store(true)
	}
	l.b.log.Error("embedded bus server", "message", text)
}

// Fatalf implements server.LoggerV2.
func (l serverLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// token makes a name fit a subject: NATS separates tokens by dots.
func token(s string) string {
	return strings.NewReplacer("%", "%25", ".", "%2E", "*", "%2A", ">", "%3E", " ", "%20").Replace(s)
}
