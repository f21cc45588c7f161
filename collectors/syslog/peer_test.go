package syslog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors/collectortest"
	"auspex/internal/certtest"
	"auspex/internal/trust"
	"auspex/internal/waittest"
)

// peer returns what a peer of test/peers has printed.
func peer(t *testing.T, variable, script string) string {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatalf("%s is not set", variable)
		}
		t.Skipf("needs test/peers/%s.sh, which prints %s", script, variable)
	}
	return v
}

func TestRsyslogForwardsOverUDPAndTCPAndTLS(t *testing.T) {
	inputs, outputs := strings.Split(peer(t, "RSYSLOG_INPUTS", "rsyslog"), ","), strings.Split(os.Getenv("RSYSLOG_OUTPUTS"), ",")
	certs := os.Getenv("RSYSLOG_CERTS")
	for i, network := range []string{"udp", "tcp", "tls"} {
		t.Run(network, func(t *testing.T) {
			cfg := only(network, outputs[i])
			cfg.TLS.Server = trust.Server{
				CertFile: filepath.Join(certs, "server.pem"), KeyFile: filepath.Join(certs, "server.key"), ClientCAFile: filepath.Join(certs, "ca.pem"),
			}
			s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1.example"), server("gpu-2", "gpu-2"))
			in := dial(t, "tcp", inputs[i])
			want := map[string]bool{"gpu-1 79 " + xid(79): true, "gpu-2 48 " + xid(48): true}
			if network == "tls" { // its certificate is that of gpu-1
				delete(want, "gpu-2 48 "+xid(48))
			}
			// A datagram that nobody hears yet is lost, and so is what rsyslog writes to a connection that the
			// receiver before this one has closed.
			waittest.Until(t, func() error {
				say(t, in, "<13>Jan  1 12:00:00 gpu-1 kernel: %s\n", xid(63)) // a user's
				say(t, in, "<3>Jan  1 12:00:00 gpu-1 kernel: [   77.123456] %s\n", xid(79))
				say(t, in, "<3>Jan  1 12:00:00 gpu-2 kernel: [   77.123456] %s\n", xid(48))
				got := map[string]bool{}
				for _, ev := range s.rec.Events() {
					got[ev.Resource+" "+ev.Code+" "+ev.Message] = true
				}
				if d := cmp.Diff(want, got); d != "" {
					return errors.New(d)
				}
				if network == "tls" && s.left(overTLS, forged) == 0 {
					return errors.New("gpu-2's line is not forged")
				}
				return nil
			})
		})
	}
}

// journalOf makes a journal of kernel messages.
func journalOf(t *testing.T, remote string, messages ...string) string {
	t.Helper()
	const boot = "2b1d9d2f7a4e4b0f9c1f6f0a5d3e7c11"
	var b strings.Builder
	for i, m := range messages {
		at := collectortest.Now.UnixMicro() + int64(i)
		fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=kernel\n_HOSTNAME=gpu-1\nPRIORITY=3\nMESSAGE=%s\n\n",
			at, 1000+i, boot, m)
	}
	dir := t.TempDir()
	export, file := filepath.Join(dir, "export"), filepath.Join(dir, "made.journal")
	if err := os.WriteFile(export, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), remote, "-o", file, export).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

func TestSystemdJournalUpload(t *testing.T) {
	upload := peer(t, "JOURNAL_UPLOAD", "journal")
	file := journalOf(t, os.Getenv("JOURNAL_REMOTE"), "Linux version 6.8.0", "nothing", xid(79), xid(48))
	cfg := only("journal", free(t, "tcp"))
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	state := filepath.Join(t.TempDir(), "state")
	send := func(args ...string) error {
		cmd := exec.CommandContext(t.Context(), upload, append([]string{"-u", "http://" + cfg.Journal.Listen, "--file=" + file, "--follow=no"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	waittest.Until(t, func() error { return send("--save-state=" + state) })
	s.wants(t, "gpu-1 boot", "gpu-1 79", "gpu-1 48")
	if b, err := os.ReadFile(state); err != nil || !strings.Contains(string(b), "LAST_CURSOR=s=") {
		t.Errorf("the upload was not acknowledged: %s %v", b, err)
	}
	// One that has lost its state sends all again.
	if err := send("--save-state=" + state + ".new"); err != nil {
		t.Fatal(err)
	}
	s.wants(t, "gpu-1 boot", "gpu-1 79", "gpu-1 48")
	if got := s.left(overJournal, known); got != 4 {
		t.Errorf("%v known entries", got)
	}
}

// Over HTTPS, by certificates of both ends: a server's journal is booked on whom its certificate names.
func TestSystemdJournalUploadOverHTTPS(t *testing.T) {
	upload := peer(t, "JOURNAL_UPLOAD", "journal")
	file := journalOf(t, os.Getenv("JOURNAL_REMOTE"), "Linux version 6.8.0", xid(79))
	ca, other := certtest.New(t), certtest.New(t)
	until := time.Now().Add(time.Hour)
	own := ca.Issue(t, until, "127.0.0.1")
	cfg := only("journal", free(t, "tcp"))
	cfg.Journal.Server = trust.Server{CertFile: own.CertFile, KeyFile: own.KeyFile, ClientCAFile: ca.File}
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"), server("gpu-2", "gpu-2"))
	send := func(of certtest.Leaf, trusted string) error {
		cmd := exec.CommandContext(t.Context(), upload, "-u", "https://"+cfg.Journal.Listen, "--file="+file, "--follow=no",
			"--save-state="+filepath.Join(t.TempDir(), "state"), "--key="+of.KeyFile, "--cert="+of.CertFile, "--trust="+trusted)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	waittest.Until(t, func() error { return send(ca.Issue(t, until, "gpu-1"), ca.File) })
	s.wants(t, "gpu-1 boot", "gpu-1 79")
	if err := send(ca.Issue(t, until, "gpu-2"), ca.File); err != nil { // with another server's journal
		t.Error(err)
	}
	if got := s.left(overJournal, forged); got != 2 {
		t.Errorf("%v entries are forged, want 2", got)
	}
	if err := send(other.Issue(t, until, "gpu-1"), ca.File); err == nil {
		t.Error("a certificate of another authority was let in")
	}
	if err := send(ca.Issue(t, until, "gpu-1"), other.File); err == nil {
		t.Error("the sender took a server that it does not trust")
	}
	s.wants(t, "gpu-1 boot", "gpu-1 79")
	counts(t, "handshakes that failed", 2, func() float64 { return testutil.ToFloat64(s.m.refused.WithLabelValues("tls")) })
}

func TestSystemdJournalUploadCountsOnceAfterKill9(t *testing.T) {
	upload := peer(t, "JOURNAL_UPLOAD", "journal")
	const n = 600
	var messages []string
	for i := range n {
		messages = append(messages, fmt.Sprintf("NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=x, Ch %08x, intr 0", i))
	}
	file, addr := journalOf(t, os.Getenv("JOURNAL_REMOTE"), messages...), free(t, "tcp")
	countsOnce(t, addr, n, func() error {
		cmd := exec.CommandContext(t.Context(), upload, "-u", "http://"+addr, "--file="+file, "--follow=no", "--save-state="+filepath.Join(t.TempDir(), "state"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
