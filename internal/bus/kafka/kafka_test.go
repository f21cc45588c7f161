package kafka_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/bus"
	"auspex/internal/bus/bustest"
	"auspex/internal/bus/kafka"
	"auspex/internal/trust"
)

// config uses the brokers of KAFKA_BROKERS, under names of its own.
func config(t *testing.T) kafka.Config {
	t.Helper()
	brokers := os.Getenv("KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("KAFKA_BROKERS is not set: no Kafka to test against")
	}
	c := kafka.DefaultConfig()
	c.Brokers = strings.Split(brokers, ",")
	c.Partitions = 3
	c.MaxMessageBytes = 2 << 20
	c.TopicPrefix = fmt.Sprintf("test-%d.", time.Now().UnixNano())
	c.GroupPrefix = c.TopicPrefix
	return c
}

func TestConformance(t *testing.T) {
	for _, codec := range []string{"snappy", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			c := config(t)
			c.Compression = codec
			bustest.Run(t, bustest.Options{
				Open: func(t *testing.T) bus.Bus {
					b, err := kafka.Open(t.Context(), c)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				MaxMessageBytes: c.MaxMessageBytes,
			})
		})
	}
}

func TestATopicThatExistsKeepsItsPartitions(t *testing.T) {
	c := config(t)
	for want := 3; want < 5; want++ { // the second one finds the topic of the first
		b, err := kafka.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := b.Partitions(t.Context(), "t"); err != nil || n != 3 {
			t.Errorf("%d partitions, %v", n, err)
		}
		_ = b.Close()
		c.Partitions = 4
	}
}

func TestNoBrokerIsAnError(t *testing.T) {
	c := kafka.DefaultConfig()
	c.Brokers, c.RequestTimeout = []string{"127.0.0.1:1"}, 300*time.Millisecond
	if _, err := kafka.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for name, change := range map[string]func(*kafka.Config){
		"brokers":            func(c *kafka.Config) { c.Brokers = nil },
		"no port":            func(c *kafka.Config) { c.Brokers = []string{"kafka"} },
		"compression":        func(c *kafka.Config) { c.Compression = "rar" },
		"partitions":         func(c *kafka.Config) { c.Partitions = 0 },
		"replication_factor": func(c *kafka.Config) { c.ReplicationFactor = -1 },
		"batch_timeout":      func(c *kafka.Config) { c.BatchTimeout = 0 },
		"max_message_bytes":  func(c *kafka.Config) { c.MaxMessageBytes = 1 },
		"request_timeout":    func(c *kafka.Config) { c.RequestTimeout = 0 },
		"mechanism":          func(c *kafka.Config) { c.SASL.Mechanism = "kerberos" },
		"password_file":      func(c *kafka.Config) { c.SASL.Mechanism = "plain" },
	} {
		c := kafka.DefaultConfig()
		c.Brokers = []string{"localhost:9092"}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := kafka.DefaultConfig()
	c.Brokers = []string{"localhost:9092"}
	c.TLS = kafka.TLS{Enabled: true, TLS: trust.TLS{CAFile: filepath.Join(t.TempDir(), "none.pem")}}
	if _, err := kafka.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "ca_file") {
		t.Errorf("missing certificate: %v", err)
	}
	c.TLS, c.SASL = kafka.TLS{}, kafka.SASL{Mechanism: "scram-sha-512", User: "u", PasswordFile: filepath.Join(t.TempDir(), "none")}
	if _, err := kafka.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "password_file") {
		t.Errorf("missing password: %v", err)
	}
}
