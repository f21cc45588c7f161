// Command containers starts the peers of a test in containers and prints their
// addresses as the scripts of test/peers do. It is a module of its own, so that
// what it needs is no dependency of the product. It ends its containers when its
// standard input ends: a test that dies leaves none behind.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// startTime bounds the start of all containers, their images included.
const startTime = 10 * time.Minute

// Images are named by version; a registry of one's own goes before them by
// TESTCONTAINERS_HUB_IMAGE_NAME_PREFIX.
const (
	kafkaImage    = "apache/kafka:4.1.1"
	postgresImage = "postgres:17.6-alpine"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var started []testcontainers.Container
	defer func() {
		for _, c := range started {
			if e := testcontainers.TerminateContainer(c); err == nil {
				err = e
			}
		}
	}()
	start := func(req testcontainers.ContainerRequest) (testcontainers.Container, error) {
		c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{ContainerRequest: req, Started: true})
		if c != nil {
			started = append(started, c)
		}
		return c, err
	}
	postgres, err := start(testcontainers.ContainerRequest{
		Image: postgresImage, ExposedPorts: []string{"5432/tcp"}, Env: map[string]string{"POSTGRES_HOST_AUTH_METHOD": "trust"},
		WaitingFor: wait.ForLog("database system is ready to accept connections").WithOccurrence(2).WithStartupTimeout(startTime),
	})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	dsn, err := postgres.PortEndpoint(ctx, "5432/tcp", "")
	if err != nil {
		return err
	}
	brokers, err := kafka(ctx, start)
	if err != nil {
		return fmt.Errorf("start Kafka: %w", err)
	}
	host, port, _ := strings.Cut(dsn, ":")
	fmt.Printf(
		"KAFKA_BROKERS=%s\nPOSTGRES_DSN='host=%s port=%s user=postgres dbname=postgres sslmode=disable'\nREADY=1\n", brokers, host, port,
	)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// kafka starts one broker. It has to advertise the port that the daemon maps, which
// is known only when the container runs: the broker waits for the script that says it.
func kafka(ctx context.Context, start func(testcontainers.ContainerRequest) (testcontainers.Container, error)) (string, error) {
	const script = "/tmp/auspex-start.sh"
	c, err := start(testcontainers.ContainerRequest{
		Image: kafkaImage, ExposedPorts: []string{"9092/tcp"},
		Env: map[string]string{
			"KAFKA_NODE_ID": "1", "KAFKA_PROCESS_ROLES": "broker,controller", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
			"KAFKA_LISTENERS":                        "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":   "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"KAFKA_CONTROLLER_LISTENER_NAMES":        "CONTROLLER",
			"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1", "KAFKA_NUM_PARTITIONS": "4", "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
			"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1", "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
		},
		Entrypoint: []string{"sh", "-c", "while [ ! -f " + script + " ]; do sleep 0.1; done; exec sh " + script},
	})
	if err != nil {
		return "", err
	}
	address, err := c.PortEndpoint(ctx, "9092/tcp", "")
	if err != nil {
		return "", err
	}
	text := "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://" + address + "\nexec /etc/kafka/docker/run\n"
	if err := c.CopyToContainer(ctx, []byte(text), script, 0o755); err != nil {
		return "", err
	}
	return address, wait.ForLog("Kafka Server started").WithStartupTimeout(startTime).WaitUntilReady(ctx, c)
}
