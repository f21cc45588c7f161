package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"

	"auspex/internal/bus"
	"auspex/internal/run"
)

const (
	// metadataTTL decides how long writers stand still after a leader has died.
	metadataTTL = time.Second
	// fetchBytes bounds what one request reads of a partition; a larger message
	// comes alone (KIP-74).
	fetchBytes = 4 << 20
	// maxWait bounds how long a broker holds a fetch open.
	maxWait = 500 * time.Millisecond
	// bombWait is the wait before a batch that cannot be unpacked is asked for again.
	bombWait = 30 * time.Second
	// writeAttempts with a second between them outlast the loss of a leader.
	writeAttempts = 30
	// closeGrace is for what is on its way, to brokers that answer; whoever published
	// it has ended by then.
	closeGrace = time.Second
)

// Bus is a Kafka cluster.
type Bus struct {
	cfg     Config
	log     *slog.Logger
	metrics *bus.Metrics
	errs    *prometheus.CounterVec
	client  *kafkago.Client
	trans   *watch
	writer  *kafkago.Writer

	mu     sync.Mutex
	topics map[string]int // partitions of the topics that are known to be there
	done   chan struct{}
	once   sync.Once
}

var _ bus.Bus = (*Bus)(nil)

// Open reads the files that the configuration names and asks the cluster for its
// brokers.
func Open(ctx context.Context, cfg Config) (*Bus, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	boundUnpacking(cfg.MaxMessageBytes)
	tlsConfig, err := cfg.tls()
	if err != nil {
		return nil, err
	}
	mechanism, err := cfg.sasl()
	if err != nil {
		return nil, err
	}
	trans := &watch{Transport: &kafkago.Transport{
		Dial: dialer(cfg.Dial, tlsConfig), DialTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second, MetadataTTL: metadataTTL,
		ClientID: "auspex", SASL: mechanism,
	}}
	addr := kafkago.TCP(cfg.Brokers...)
	b := &Bus{
		cfg: cfg, log: cfg.Log, metrics: bus.NewMetrics(cfg.Metrics), trans: trans,
		client: &kafkago.Client{Addr: addr, Transport: trans},
		errs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_bus_kafka_errors_total", Help: "Failed requests to Kafka that were repeated.",
		}, []string{"request"}),
		topics: map[string]int{}, done: make(chan struct{}),
	}
	b.writer = &kafkago.Writer{
		Addr: addr, Transport: trans, Balancer: byKey{}, RequiredAcks: kafkago.RequireAll, Compression: codecs[cfg.Compression],
		// The writer makes room for as many messages with the first of a batch, and most have a few.
		BatchTimeout: cfg.BatchTimeout, BatchSize: 200, BatchBytes: int64(cfg.MaxMessageBytes) + 64<<10,
		MaxAttempts: writeAttempts, WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: time.Second,
		ReadTimeout: cfg.RequestTimeout, WriteTimeout: cfg.RequestTimeout,
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(b.errs)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	var away error // why the brokers do not answer, rather than that time is up
	if err := b.retry(ctx, "metadata", func(ctx context.Context) error {
		_, err := b.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{}})
		if err != nil && away == nil && !final(err) && ctx.Err() == nil {
			b.log.Warn("Kafka does not answer yet", "brokers", cfg.Brokers, "waits", cfg.RequestTimeout.String(), "error", err)
		}
		if ctx.Err() == nil || away == nil {
			away = err
		}
		return err
	}); err != nil {
		if errors.Is(away, context.DeadlineExceeded) {
			away = fmt.Errorf("no answer within %s", cfg.RequestTimeout)
		}
		_ = b.Close()
		return nil, fmt.Errorf("open bus on Kafka at %s: %w", strings.Join(cfg.Brokers, ", "), away)
	}
	return b, nil
}

// byKey spreads messages as every bus does.
type byKey struct{}

func (byKey) Balance(m kafkago.Message, partitions ...int) int {
	return partitions[bus.PartitionFor(string(m.Key), len(partitions))]
}

// retry repeats a request until it succeeds, cannot succeed, or ctx is done.
func (b *Bus) retry(ctx context.Context, request string, f func(context.Context) error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		actx, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
		err := f(actx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-b.done:
			return bus.ErrClosed
		default:
		}
		if ctx.Err() != nil || final(err) {
			return err
		}
		b.errs.WithLabelValues(request).Inc()
		b.log.Debug("request to Kafka failed; trying again", "request", request, "error", err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-b.done:
			t.Stop()
			return bus.ErrClosed
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// final tells errors that another try does not change.
func final(err error) bool {
	if errors.As(err, &away{}) {
		return true
	}
	var k kafkago.Error
	if errors.As(err, &k) {
		return k != kafkago.Unknown && !k.Temporary() // a broker says that it does not know what went wrong, as while a topic comes to be
	}
	var alert *net.OpError // crypto/tls tells by it what the other end refused
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, &alert) &&
		alert.Op == "remote error"
}

// away is the error of brokers that are not waited for.
type away struct{ error }

func (a away) Unwrap() error { return a.error }

// topic returns the number of partitions of a topic, and makes it when it is not
// there. A broker refuses writes to a topic whose leaders are not elected yet.
func (b *Bus) topic(ctx context.Context, name string) (int, error) {
	select {
	case <-b.done:
		return 0, bus.ErrClosed
	default:
	}
	b.mu.Lock()
	n, ok := b.topics[name]
	b.mu.Unlock()
	if ok {
		return n, nil
	}
	full := b.cfg.TopicPrefix + name
	ctx, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	asked := false
	err := b.retry(ctx, "topic", func(ctx context.Context) error {
		var err error
		if n, err = b.resolve(ctx, full); err == nil || !errors.Is(err, kafkago.UnknownTopicOrPartition) || asked {
			return err
		}
		if err := b.create(ctx, name, full); err != nil {
			return err
		}
		asked = true
		return kafkago.LeaderNotAvailable // look again
	})
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", full, err)
	}
	b.mu.Lock()
	b.topics[name] = n
	b.mu.Unlock()
	return n, nil
}

func (b *Bus) resolve(ctx context.Context, full string) (int, error) {
	// Asking by name would make brokers create it, with their own defaults: a
	// request for all topics does not.
	m, err := b.client.Metadata(ctx, &kafkago.MetadataRequest{})
	if err != nil {
		return 0, err
	}
	for _, t := range m.Topics {
		if t.Name != full {
			continue
		}
		if t.Error != nil {
			return 0, t.Error
		}
		for _, p := range t.Partitions {
			if p.Error != nil {
				return 0, p.Error
			}
			if p.Leader.Host == "" {
				return 0, kafkago.LeaderNotAvailable
			}
		}
		if len(t.Partitions) == 0 {
			return 0, kafkago.LeaderNotAvailable
		}
		return len(t.Partitions), nil
	}
	return 0, kafkago.UnknownTopicOrPartition
}

func (b *Bus) create(ctx context.Context, name, full string) error {
	r, ok := b.cfg.Retention[name]
	if !ok {
		r = b.cfg.Default
	}
	entries := []kafkago.ConfigEntry{{ConfigName: "max.message.bytes", ConfigValue: strconv.Itoa(b.cfg.MaxMessageBytes + 64<<10)}}
	if r.Bytes > 0 {
		entries = append(
			entries,
			kafkago.ConfigEntry{ConfigName: "retention.bytes", ConfigValue: strconv.FormatInt(max(r.Bytes/int64(b.cfg.Partitions), 1<<20), 10)},
		)
	}
	if r.Age > 0 {
		entries = append(entries, kafkago.ConfigEntry{ConfigName: "retention.ms", ConfigValue: strconv.FormatInt(r.Age.Milliseconds(), 10)})
	}
	factor := b.cfg.ReplicationFactor
	if factor == 0 {
		factor = -1 // KIP-464: the broker's default
	}
	res, err := b.client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{
		Topic: full, NumPartitions: b.cfg.Partitions, ReplicationFactor: factor, ConfigEntries: entries,
	}}})
	if err != nil {
		return err
	}
	if err := res.Errors[full]; err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) {
		return err
	}
	return nil
}

// Publish appends the messages and returns when all in-sync replicas have them.
func (b *Bus) Publish(ctx context.Context, msgs ...bus.Message) (err error) {
	start := time.Now()
	defer func() { b.metrics.Published(msgs, start, err) }()
	out := make([]kafkago.Message, 0, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if n := len(m.Value) + len(m.Key); n > b.cfg.MaxMessageBytes {
			return fmt.Errorf("publish to %s: %d bytes, limit %d: %w", m.Topic, n, b.cfg.MaxMessageBytes, bus.ErrTooLarge)
		}
		if _, err := b.topic(ctx, m.Topic); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		out = append(out, kafkago.Message{Topic: b.cfg.TopicPrefix + m.Topic, Key: []byte(m.Key), Value: m.Value})
	}
	if err := b.writer.WriteMessages(ctx, out...); err != nil {
		select {
		case <-b.done:
			return fmt.Errorf("publish: %w", bus.ErrClosed)
		default:
		}
		var each kafkago.WriteErrors
		if errors.As(err, &each) {
			for i, e := range each {
				if errors.Is(e, kafkago.MessageSizeTooLarge) {
					return fmt.Errorf("publish to %s: %w: %w", msgs[i].Topic, bus.ErrTooLarge, e)
				}
				if e != nil {
					b.trans.note(e)
					return fmt.Errorf("publish to %s: %d of %d messages: %w", msgs[i].Topic, each.Count(), len(msgs), e)
				}
			}
		}
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// Partitions returns how many partitions a topic has.
func (b *Bus) Partitions(ctx context.Context, topic string) (int, error) { return b.topic(ctx, topic) }

// Subscribe reads a topic.
func (b *Bus) Subscribe(ctx context.Context, sub bus.Subscription, handle bus.Handler) error {
	n, err := b.topic(ctx, sub.Topic)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	// A fetch that is under way ends with the bus.
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-b.done:
			cancel()
		case <-sctx.Done():
		}
	}()
	l := &topicLog{b: b, name: sub.Topic, full: b.cfg.TopicPrefix + sub.Topic, n: n, rest: map[int]rest{}}
	err = bus.Read(sctx, l, sub, b.metrics, b.log, handle)
	select {
	case <-b.done:
		if ctx.Err() == nil {
			return bus.ErrClosed
		}
	default:
	}
	return err
}

// Close ends subscriptions with [bus.ErrClosed] and returns when what was being
// published is settled, or after a second, or at once where nobody answers.
func (b *Bus) Close() error {
	b.once.Do(func() {
		close(b.done)
		closed, grace := make(chan struct{}), closeGrace
		if b.Health() != nil {
			grace = 0
		}
		go func() {
			_ = b.writer.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(grace):
			b.log.Warn("writer did not stop in time; messages in flight may be lost", "grace", grace.String())
		}
		b.trans.CloseIdleConnections()
	})
	return nil
}

// topicLog reads the partitions of a topic for one subscription.
type topicLog struct {
	b    *Bus
	name string
	full string
	n    int

	mu   sync.Mutex
	rest map[int]rest // what a request brought beyond what was asked for
}

type rest struct {
	msgs []bus.Message
	more int64 // behind msgs
}

func (l *topicLog) Partitions(context.Context) (int, error) { return l.n, nil }

func (l *topicLog) Bounds(ctx context.Context, p int) (first, next int64, err error) {
	err = l.b.retry(ctx, "list_offsets", func(ctx context.Context) error {
		res, err := l.b.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{
			Topics: map[string][]kafkago.OffsetRequest{l.full: {kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p)}},
		})
		if err != nil {
			return err
		}
		for _, o := range res.Topics[l.full] {
			if o.Partition == p {
				first, next = o.FirstOffset, o.LastOffset
				return o.Error
			}
		}
		return io.ErrUnexpectedEOF
	})
	return first, next, err
}

func (l *topicLog) Position(ctx context.Context, group string, p int) (at int64, found bool, err error) {
	err = l.b.retry(ctx, "offset_fetch", func(ctx context.Context) error {
		res, err := l.b.client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{
			GroupID: l.b.cfg.GroupPrefix + group, Topics: map[string][]int{l.full: {p}},
		})
		if err != nil {
			return err
		}
		if res.Error != nil {
			return res.Error
		}
		for _, o := range res.Topics[l.full] {
			if o.Partition == p {
				at, found = o.CommittedOffset, o.CommittedOffset >= 0
				return o.Error
			}
		}
		return nil
	})
	return at, found, err
}

// Commit tries again until its context is done. A subscription that ends, whose context has a deadline, does
// not wait for brokers that do not answer: there are many, and they end one after the other.
func (l *topicLog) Commit(ctx context.Context, group string, p int, next int64) error {
	_, ends := ctx.Deadline()
	return l.b.retry(ctx, "offset_commit", func(ctx context.Context) error {
		if since, err := l.b.trans.failing(); ends && err != nil {
			return away{fmt.Errorf("no answer since %s: %w", since.UTC().Format(time.TimeOnly), err)}
		}
		res, err := l.b.client.OffsetCommit(ctx, &kafkago.OffsetCommitRequest{
			GroupID: l.b.cfg.GroupPrefix + group, GenerationID: -1,
			Topics: map[string][]kafkago.OffsetCommit{l.full: {{Partition: p, Offset: next}}},
		})
		if err != nil {
			return err
		}
		for _, o := range res.Topics[l.full] {
			if o.Error != nil {
				return o.Error
			}
		}
		return nil
	})
}

func (l *topicLog) Fetch(ctx context.Context, p int, offset int64, limit int, wait time.Duration) ([]bus.Message, int64, error) {
	l.mu.Lock()
	r := l.rest[p]
	delete(l.rest, p)
	l.mu.Unlock()
	if len(r.msgs) == 0 || r.msgs[0].Offset != offset {
		var err error
		if r, err = l.fetch(ctx, p, offset, wait); err != nil {
			return nil, 0, err
		}
	}
	if len(r.msgs) <= limit {
		return r.msgs, r.more, nil
	}
	l.mu.Lock()
	l.rest[p] = rest{r.msgs[limit:], r.more}
	l.mu.Unlock()
	return r.msgs[:limit:limit], int64(len(r.msgs)-limit) + r.more, nil
}

// fetch asks the partition's leader. A leader that is away counts as nothing
// there: the caller asks again.
func (l *topicLog) fetch(ctx context.Context, p int, offset int64, wait time.Duration) (rest, error) {
	wait = max(min(wait, maxWait), time.Millisecond)
	actx, cancel := context.WithTimeout(ctx, wait+l.b.cfg.RequestTimeout)
	defer cancel()
	res, err := l.b.client.Fetch(actx, &kafkago.FetchRequest{
		Topic: l.full, Partition: p, Offset: offset, MinBytes: 1, MaxBytes: fetchBytes, MaxWait: wait,
	})
	var msgs []bus.Message
	if err == nil {
		err = res.Error
		if err == nil {
			msgs, err = l.read(res.Records, p, offset)
		}
		if c, ok := res.Records.(io.Closer); ok {
			_ = c.Close()
		}
	}
	switch {
	case err == nil:
		more := int64(0)
		if len(msgs) > 0 {
			more = max(res.HighWatermark-msgs[len(msgs)-1].Offset-1, 0)
		}
		return rest{msgs, more}, nil
	case ctx.Err() != nil:
		return rest{}, ctx.Err()
	case errors.Is(err, kafkago.OffsetOutOfRange):
		first, _, berr := l.Bounds(ctx, p)
		if berr != nil {
			return rest{}, berr
		}
		if offset < first { // retention was faster
			return l.fetch(ctx, p, first, wait)
		}
		return rest{}, err
	case errors.Is(err, errUnpacked), errors.Is(err, errCount):
		// It is not passed over: nobody knows what is in it. A person removes it.
		l.b.errs.WithLabelValues("unpack").Inc()
		l.b.log.Error("a record batch is a bomb; its partition stands still until it is deleted",
			"topic", l.full, "partition", p, "offset", offset, "error", err)
		return rest{}, run.Sleep(ctx, bombWait)
	case final(err):
		return rest{}, err
	}
	l.b.errs.WithLabelValues("fetch").Inc()
	l.b.log.Debug("fetch failed; trying again", "topic", l.full, "partition", p, "error", err)
	return rest{}, run.Sleep(ctx, 100*time.Millisecond)
}

func (l *topicLog) read(records kafkago.RecordReader, p int, offset int64) ([]bus.Message, error) {
	var msgs []bus.Message
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return msgs, nil
		}
		if err != nil {
			// A response ends in the middle of a batch when it reaches its size.
			if len(msgs) > 0 {
				return msgs, nil
			}
			return nil, err
		}
		if rec.Offset < offset { // batches are sent whole
			continue
		}
		key, err := readAll(rec.Key)
		if err != nil {
			return nil, err
		}
		value, err := readAll(rec.Value)
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, bus.Message{Topic: l.name, Key: string(key), Value: value, Partition: p, Offset: rec.Offset, Time: rec.Time})
	}
}

func readAll(b kafkago.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer func() { _ = b.Close() }()
	out := make([]byte, b.Len())
	if _, err := io.ReadFull(b, out); err != nil {
		return nil, err
	}
	return out, nil
}
