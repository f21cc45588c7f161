package kafka_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"auspex/internal/bus/kafka"
	"auspex/internal/certtest"
)

// broker answers what a client asks when it opens, and no more.
func broker(t *testing.T, l net.Listener) {
	t.Helper()
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
					at := l.Addr().(*net.TCPAddr)
					var answer protocol.Message
					switch msg.(type) {
					case *apiversions.Request:
						answer = &apiversions.Response{ApiKeys: []apiversions.ApiKeyResponse{
							{ApiKey: int16(protocol.ApiVersions), MaxVersion: 2}, {ApiKey: int16(protocol.Metadata), MinVersion: 1, MaxVersion: 6},
						}}
					case *metadata.Request:
						answer = &metadata.Response{Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: at.IP.String(), Port: int32(at.Port)}}, ControllerID: 1} //nolint:gosec // a port
					default:
						return
					}
					if err := protocol.WriteResponse(c, version, id, answer); err != nil {
						return
					}
				}
			})
		}
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWhomTheBusTrusts(t *testing.T) {
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		l := listen(t)
		broker(t, tls.NewListener(l, h.Server))
		c := kafka.DefaultConfig()
		c.Brokers, c.RequestTimeout = []string{l.Addr().String()}, 20*time.Second
		c.TLS = kafka.TLS{Enabled: true, TLS: h.TLS}
		b, err := kafka.Open(t.Context(), c)
		if err != nil {
			return err
		}
		return b.Close()
	})
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func TestABrokerThatComesLateIsWaitedForAndToldOnce(t *testing.T) {
	l := listen(t)
	address := l.Addr().String()
	refused := make(chan struct{})
	var once sync.Once
	c := kafka.DefaultConfig()
	c.Brokers, c.RequestTimeout = []string{address}, time.Minute
	var log lines
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	away := make(chan struct{})
	c.Dial = dialer(func() error {
		select {
		case <-away:
			return nil
		default:
			once.Do(func() { close(refused) })
			return errors.New("nobody listens")
		}
	})
	go func() {
		<-refused
		close(away)
	}()
	broker(t, l)
	b, err := kafka.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if n := strings.Count(log.String(), "does not answer yet"); n != 1 || !strings.Contains(log.String(), "nobody listens") ||
		!strings.Contains(log.String(), address) {
		t.Errorf("said %d times: %s", n, log.String())
	}
}
