package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script is a peer of our own, started by its script of test/peers.
type script struct {
	t    *testing.T
	name string
	dir  string
}

// startPeer starts a peer; a test that takes it away needs one that no other uses.
func startPeer(t *testing.T, name, dir string) (script, map[string]string) {
	t.Helper()
	s := script{t, name, filepath.Join(dir, name)}
	t.Cleanup(func() { s.run("stop") })
	return s, s.start()
}

func (s script) run(verb string) []byte {
	s.t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "test", "peers", s.name+".sh"), verb, s.dir)
	var out, output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &output
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s %s: %v\n%s", s.name, verb, err, output.Bytes())
	}
	return out.Bytes()
}

// start returns the variables that the script prints.
func (s script) start() map[string]string {
	s.t.Helper()
	vars := map[string]string{}
	for line := range strings.Lines(string(s.run("start"))) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[key] = strings.Trim(value, "'")
	}
	return vars
}

// degraded is what does not work, as the product says of itself.
func (p *product) degraded() (map[string]string, error) {
	var h struct {
		Degraded map[string]string `json:"degraded"`
	}
	err := p.get("-/healthy", &h)
	return h.Degraded, err
}

// reports waits until health names what is away in one line.
func (p *product) reports(check, part string) {
	p.t.Helper()
	p.await("health tells of "+check, func() error {
		d, err := p.degraded()
		if err != nil {
			return err
		}
		if output := d[check]; output == "" || !strings.Contains(output, part) || strings.Contains(output, "\n") {
			return fmt.Errorf("%s: %q", check, output)
		}
		return nil
	})
}

// isWell waits until nothing is degraded.
func (p *product) isWell() {
	p.t.Helper()
	p.await("everything works again", func() error {
		d, err := p.degraded()
		if err == nil && len(d) > 0 {
			err = fmt.Errorf("degraded: %v", d)
		}
		return err
	})
}

// engines lists the processes of the embedded engine on a folder.
func engines(dir string) []int {
	return slices.DeleteFunc(processesOf(dir), func(pid int) bool {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		return err != nil || !slices.Contains(strings.Split(string(line), "\x00"), "engine")
	})
}

// TestWhatGoesAwayComesBackAndNothingIsLost runs the product on Kafka and
// PostgreSQL, takes away the one, the other and the engine while the fleet has
// much to say, and stops it while Kafka is away.
func TestWhatGoesAwayComesBackAndNothingIsLost(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as a user of its own
		t.Fatal(err)
	}
	kafka, brokers := startPeer(t, "kafka", dir)
	postgres, store := startPeer(t, "postgres", dir)
	args := []string{
		"--script", "testdata/scripts/storm.yaml", "--seed", "5", "--set", "bus.type=kafka", "--set",
		"bus.kafka.brokers=[" + brokers["KAFKA_BROKERS"] + "]",
		"--set", "store.sql=" + store["POSTGRES_DSN"],
	}
	loseKafka := func() {
		t.Helper()
		pid, err := strconv.Atoi(brokers["KAFKA_PIDS"])
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatalf("kill the broker %q: %v", brokers["KAFKA_PIDS"], err)
		}
	}
	p := startDemo(t, dir, args...)
	p.await("an incident", func() error {
		_, names, err := p.judged()
		if err == nil && len(names) == 0 {
			err = errors.New("none yet")
		}
		return err
	})
	p.isWell()

	loseKafka()
	p.reports("bus", brokers["KAFKA_BROKERS"])
	time.Sleep(30 * time.Second) // the outage
	brokers = kafka.start()
	p.isWell()

	postgres.run("stop")
	p.reports("state", "PostgreSQL does not answer")
	p.reports("control", "")
	time.Sleep(10 * time.Second) // the outage
	postgres.start()
	p.isWell()

	killed := engines(dir)
	if len(killed) != 1 {
		t.Fatalf("engines %v, want one", killed)
	}
	if err := syscall.Kill(killed[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.await("another engine", func() error {
		if now := engines(dir); len(now) != 1 || now[0] == killed[0] {
			return fmt.Errorf("engines %v", now)
		}
		return nil
	})
	p.isWell()

	loseKafka()
	p.reports("bus", brokers["KAFKA_BROKERS"])
	stop := measureLateness(t).span()
	p.interrupt()
	stop.within(t, longestStop, "Ctrl-C while Kafka is away")
	brokers = kafka.start()
	if n := storedOnce(t, startDemo(t, dir, args...)); n < 150 {
		t.Errorf("the fleet has said only %d things", n)
	}
}
