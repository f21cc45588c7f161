// Package kafka is the bus on Apache Kafka. Producers wait for all in-sync
// replicas. Readers fetch partitions themselves, without group membership, so
// that no rebalance moves a partition in the middle of a batch; the positions of
// groups are Kafka's own committed offsets, where other tools find them.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"auspex/internal/trust"
	"auspex/schemas"
)

// Retention bounds what a topic keeps. Zero leaves it to the broker.
type Retention struct {
	Bytes int64         `yaml:"bytes"` // over all partitions
	Age   time.Duration `yaml:"age"`
}

// TLS says how brokers are trusted and how we identify ourselves.
type TLS struct {
	trust.TLS `yaml:",inline"`
	Enabled   bool `yaml:"enabled"`
}

// SASL says how we log in.
type SASL struct {
	Mechanism    string `yaml:"mechanism"` // plain, scram-sha-256 or scram-sha-512; empty is none
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// Config says which brokers to use and how topics are made.
type Config struct {
	Brokers []string `yaml:"brokers"` // host:port
	// TopicPrefix and GroupPrefix keep installations on one cluster apart.
	TopicPrefix string `yaml:"topic_prefix"`
	GroupPrefix string `yaml:"group_prefix"`
	// Partitions and ReplicationFactor are those of topics that do not exist yet.
	// A factor of 0 leaves it to the broker.
	Partitions        int                  `yaml:"partitions"`
	ReplicationFactor int                  `yaml:"replication_factor"`
	Compression       string               `yaml:"compression"` // none, snappy, lz4 or zstd
	BatchTimeout      time.Duration        `yaml:"batch_timeout"`
	MaxMessageBytes   int                  `yaml:"max_message_bytes"`
	RequestTimeout    time.Duration        `yaml:"request_timeout"`
	Default           Retention            `yaml:"default_retention"`
	Retention         map[string]Retention `yaml:"retention"` // by topic, without the prefix
	TLS               TLS                  `yaml:"tls"`
	SASL              SASL                 `yaml:"sasl"`

	Log     *slog.Logger          `yaml:"-"`
	Metrics prometheus.Registerer `yaml:"-"`
	// Dial connects to a broker; nil dials its address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-"`
}

// DefaultConfig has no brokers; topics are made with 8 partitions, and batches
// leave after 2 ms.
func DefaultConfig() Config {
	return Config{
		TopicPrefix: "auspex.", GroupPrefix: "auspex.", Partitions: 8, Compression: "snappy", BatchTimeout: 2 * time.Millisecond,
		MaxMessageBytes: 8 << 20, RequestTimeout: 30 * time.Second,
		Default:   Retention{Age: 7 * 24 * time.Hour},
		Retention: map[string]Retention{schemas.TopicTelemetry: {Age: 24 * time.Hour}},
	}
}

var codecs = map[string]kafkago.Compression{"": 0, "none": 0, "snappy": kafkago.Snappy, "lz4": kafkago.Lz4, "zstd": kafkago.Zstd}

// Validate reports the first setting that cannot work. It does not read files.
func (c Config) Validate() error {
	if len(c.Brokers) == 0 {
		return errors.New("kafka: brokers is required")
	}
	for _, b := range c.Brokers {
		if !strings.Contains(b, ":") {
			return fmt.Errorf("kafka: broker %q has no port", b)
		}
	}
	if _, ok := codecs[c.Compression]; !ok {
		return fmt.Errorf("kafka: compression: want none, snappy, lz4 or zstd, got %q", c.Compression)
	}
	switch {
	case c.Partitions < 1:
		return fmt.Errorf("kafka: partitions is %d; it must be positive", c.Partitions)
	case c.ReplicationFactor < 0:
		return fmt.Errorf("kafka: replication_factor is %d; it must not be negative", c.ReplicationFactor)
	case c.BatchTimeout <= 0:
		return fmt.Errorf("kafka: batch_timeout is %s; it must be positive", c.BatchTimeout)
	case c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > 64<<20:
		return fmt.Errorf("kafka: max_message_bytes: want 1 KiB to 64 MiB, got %d", c.MaxMessageBytes)
	case c.RequestTimeout <= 0:
		return fmt.Errorf("kafka: request_timeout is %s; it must be positive", c.RequestTimeout)
	}
	switch c.SASL.Mechanism {
	case "":
	case "plain", "scram-sha-256", "scram-sha-512":
		if c.SASL.User == "" || c.SASL.PasswordFile == "" {
			return errors.New("kafka: sasl needs user and password_file")
		}
	default:
		return fmt.Errorf("kafka: sasl.mechanism: want plain, scram-sha-256 or scram-sha-512, got %q", c.SASL.Mechanism)
	}
	return nil
}

// CheckFiles reads the files that the configuration names.
func (c Config) CheckFiles() error {
	_, terr := c.tls()
	_, serr := c.sasl()
	return errors.Join(terr, serr)
}

func (c Config) tls() (*tls.Config, error) {
	if !c.TLS.Enabled {
		return nil, nil
	}
	t, err := c.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("kafka: tls: %w", err)
	}
	return t, nil
}

func (c Config) sasl() (sasl.Mechanism, error) {
	if c.SASL.Mechanism == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.SASL.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("read kafka.sasl.password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch c.SASL.Mechanism {
	case "scram-sha-256":
		return scram.Mechanism(scram.SHA256, c.SASL.User, password)
	case "scram-sha-512":
		return scram.Mechanism(scram.SHA512, c.SASL.User, password)
	}
	return plain.Mechanism{Username: c.SASL.User, Password: password}, nil
}
