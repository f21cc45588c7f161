package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"auspex/collectors/collectortest"
	"auspex/internal/tunnel/tunneltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// dials lets the agent listen nowhere and dial a server, with a token.
func (s *server) dials(to *tunneltest.Server, token string) {
	s.t.Helper()
	s.write("token", token+"\n")
	s.write("agent.yaml", fmt.Sprintf(`
data: %[1]s/data
listen: ""
dial: [{address: "%[2]s", ca_file: %[3]s, server_name: collector.example, token_file: %[1]s/token, retry: 100ms}]
kernel: {path: %[1]s/kmsg, boot_id_file: %[1]s/boot, poll_interval: 5ms}
target: {min_sample: 100ms}
`, s.dir, to.Addr, to.CA))
	s.addr = schemas.AgentDialsIn
}

func TestEveryLineComesOnceThroughATunnel(t *testing.T) {
	const lines = 1000
	s := newServer(t)
	hub := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"secret-1": "gpu-r01-01"}), slog.New(slog.DiscardHandler))
	s.dials(hub, "secret-1")
	s.start()
	rec, settings := collectortest.NewRecorder(), collectortest.Settings()
	settings.Now, settings.Tunnels = time.Now, hub
	stop := s.collect(settings, rec)
	defer stop()
	for s.seq < lines {
		s.log(10)
		if s.seq == 300 || s.seq == 700 {
			s.kill()
			s.log(50)
			s.start()
		}
	}
	waittest.Until(t, func() error {
		if n := len(numbers(rec)); n < lines {
			return fmt.Errorf("%d of %d lines", n, lines)
		}
		return nil
	})
	stop()
	seen := map[string]bool{}
	for key, n := range numbers(rec) {
		number, _, _ := strings.Cut(key, " ")
		if n != 1 || seen[number] {
			t.Errorf("line %s came more than once", number)
		}
		seen[number] = true
	}
	if len(seen) != lines {
		t.Errorf("%d lines, want %d", len(seen), lines)
	}
}
