package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"auspex/internal/bus"
	"auspex/internal/waittest"
)

const bombBytes = 3 * minUnpacked

// zeros are so many of them.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestNoCodecUnpacksMoreThanABatchOfOursMayHold hands a real bomb to each codec that the
// client library has, and a batch that is large but within the bound.
func TestNoCodecUnpacksMoreThanABatchOfOursMayHold(t *testing.T) {
	boundUnpacking(1)
	for _, c := range compress.Codecs {
		if c == nil {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			for size, bomb := range map[int64]bool{bombBytes: true, minUnpacked: false} {
				var packed bytes.Buffer
				w := c.NewWriter(&packed)
				if _, err := io.Copy(w, zeros(size)); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := c.NewReader(bytes.NewReader(packed.Bytes()))
				n, err := io.Copy(io.Discard, r)
				_ = r.Close()
				runtime.ReadMemStats(&after)
				t.Logf("%d MiB in %d KiB: %d MiB, %v; %d MiB allocated",
					size>>20, packed.Len()>>10, n>>20, err, (after.TotalAlloc-before.TotalAlloc)>>20)
				if bomb != errors.Is(err, errUnpacked) || n > minUnpacked {
					t.Errorf("%d of %d bytes: %v", n, size, err)
				}
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 2*minUnpacked {
					t.Errorf("%d MiB were allocated", grown>>20)
				}
			}
		})
	}
}

// hostile is a broker with one topic of one partition that holds a bomb, or states
// that it holds more records than anybody has room for.
func hostile(t *testing.T, topic string, counts bool) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	value := make([]byte, bombBytes)
	answer := func(msg protocol.Message) protocol.Message {
		switch msg.(type) {
		case *apiversions.Request:
			return &apiversions.Response{ApiKeys: []apiversions.ApiKeyResponse{
				{ApiKey: int16(protocol.ApiVersions), MaxVersion: 2},
				{ApiKey: int16(protocol.Metadata), MinVersion: 1, MaxVersion: 6},
				{ApiKey: int16(protocol.ListOffsets), MinVersion: 1, MaxVersion: 5},
				{ApiKey: int16(protocol.Fetch), MinVersion: 4, MaxVersion: 11},
			}}
		case *metadata.Request:
			return &metadata.Response{
				Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: at.IP.String(), Port: int32(at.Port)}}, ControllerID: 1, //nolint:gosec // a port
				Topics: []metadata.ResponseTopic{{Name: topic, Partitions: []metadata.ResponsePartition{{
					LeaderID: 1, ReplicaNodes: []int32{1}, IsrNodes: []int32{1},
				}}}},
			}
		case *listoffsets.Request:
			return &listoffsets.Response{Topics: []listoffsets.ResponseTopic{{
				Topic: topic, Partitions: []listoffsets.ResponsePartition{{Offset: 0}},
			}}}
		case *fetch.Request:
			return &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: topic, Partitions: []fetch.ResponsePartition{{
				HighWatermark: 1, RecordSet: protocol.RecordSet{
					Version: 2, Attributes: protocol.Gzip, Records: protocol.NewRecordReader(protocol.Record{Value: protocol.NewBytes(value)}),
				},
			}}}}}
		}
		return nil
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				for {
					version, id, _, msg, err := protocol.ReadRequest(c)
					if err != nil {
						return
					}
					a := answer(msg)
					if a == nil {
						return
					}
					if _, ok := a.(*fetch.Response); ok && counts {
						frame := answerOf(t, version, 0, false)
						binary.BigEndian.PutUint32(frame[4:], uint32(id)) //nolint:gosec // as it is on the wire
						at := batchAt(t, frame) + 12
						binary.BigEndian.PutUint32(frame[at+45:], 1<<31-1)
						crc := crc32.Checksum(frame[at+9:], crc32.MakeTable(crc32.Castagnoli))
						binary.BigEndian.PutUint32(frame[at+5:], crc)
						if _, err := c.Write(frame); err != nil {
							return
						}
						continue
					}
					if protocol.WriteResponse(c, version, id, a) != nil {
						return
					}
				}
			})
		}
	})
	return at.String()
}

// said collects a log.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// fromHostile reads from a hostile broker until a text is logged, and returns the log. Nothing may be handed over.
func fromHostile(t *testing.T, states bool, until string) string {
	t.Helper()
	cfg := DefaultConfig()
	topic := cfg.TopicPrefix + "telemetry"
	var log said
	cfg.Brokers, cfg.Partitions, cfg.ReplicationFactor, cfg.RequestTimeout = []string{hostile(t, topic, states)}, 1, 1, 20*time.Second
	cfg.Metrics, cfg.Log = prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	sub := bus.Subscription{
		Topic: "telemetry", Partitions: []int{0}, Start: func(context.Context, int) (int64, error) { return 0, nil },
	}
	go func() {
		done <- b.Subscribe(ctx, sub, func(context.Context, []bus.Message) error {
			t.Error("something was handed over")
			return nil
		})
	}()
	waittest.Until(t, func() error {
		if log.has(until) {
			return nil
		}
		return errors.New("nobody is told")
	})
	cancel()
	<-done
	return log.text.String()
}

// TestABombInAPartitionIsToldAndNotUnpackedAgainAndAgain reads from a hostile broker.
func TestABombInAPartitionIsToldAndNotUnpackedAgainAndAgain(t *testing.T) {
	if log := fromHostile(t, false, "is a bomb"); !strings.Contains(log, "offset=0") {
		t.Errorf("nobody was told: %s", log)
	}
}

// TestABrokerThatStatesMoreThanItHoldsTakesNoMemory reads from a broker that tells of two
// thousand million records: the connection ends, and somebody is told.
func TestABrokerThatStatesMoreThanItHoldsTakesNoMemory(t *testing.T) {
	fromHostile(t, true, "counts that its answer cannot hold")
}
