package syslog

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/certtest"
	"auspex/internal/trust"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func xid(code int) string {
	return fmt.Sprintf("NVRM: Xid (PCI:0000:1b:00): %d, pid=1, name=x, Ch 00000008", code)
}

func server(id, from string, attrs ...string) schemas.Resource {
	m := map[string]string{schemas.AttrSyslogFrom: from}
	for i := 0; i+1 < len(attrs); i += 2 {
		m[attrs[i]] = attrs[i+1]
	}
	return schemas.Resource{ID: id, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(m)}
}

// free returns addresses on which nothing listens.
func free(t testing.TB, network string) string {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().String()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// site is a receiver with the collectors of its servers.
type site struct {
	*receiver
	rec  *collectortest.Recorder
	stop func()
}

// begin runs a receiver and its collectors until the test ends, or stop is called.
func begin(t testing.TB, cfg *Config, s collectors.Settings, out collectors.Emitter, resources ...schemas.Resource) *site {
	t.Helper()
	r, err := newReceiver(*cfg, s)
	if err != nil {
		t.Fatal(err)
	}
	r.Place(resources)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 64)
	n := 1
	go func() { ended <- r.Run(ctx) }()
	for _, target := range cfg.Targets(resources) {
		c, err := r.New(target, s)
		if err != nil {
			t.Fatal(err)
		}
		n++
		go func() {
			for {
				err := c.Run(ctx, out)
				if ctx.Err() != nil {
					ended <- nil
					return
				}
				t.Logf("collector: %v", err)
				time.Sleep(time.Millisecond) // as the runner waits
			}
		}()
	}
	out2 := &site{receiver: r, stop: func() {
		cancel()
		for ; n > 0; n-- {
			if err := <-ended; err != nil {
				t.Errorf("receiver: %v", err)
			}
		}
	}}
	out2.rec, _ = out.(*collectortest.Recorder)
	t.Cleanup(func() { out2.end() })
	return out2
}

// end ends a site, once.
func (s *site) end() {
	stop := s.stop
	s.stop = func() {}
	stop()
}

func only(network, addr string) *Config {
	c := Default()
	c.UDP, c.TCP, c.Journal.Listen = "", "", ""
	switch network {
	case "udp":
		c.UDP = addr
	case "tcp":
		c.TCP = addr
	case "tls":
		c.TLS.Listen = addr
	case "journal":
		c.Journal.Listen = addr
	}
	return c
}

func dial(t testing.TB, network, addr string) net.Conn {
	t.Helper()
	var conn net.Conn
	waittest.Until(t, func() (err error) {
		conn, err = net.Dial(network, addr)
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(t testing.TB, w io.Writer, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(w, format, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *site) wants(t testing.TB, want ...string) []schemas.Event {
	t.Helper()
	var evs []schemas.Event
	waittest.Until(t, func() error {
		evs = s.rec.Events()
		got := map[string]int{}
		for _, ev := range evs {
			got[ev.Resource+" "+ev.Code]++
		}
		w := map[string]int{}
		for _, x := range want {
			w[x]++
		}
		if d := cmp.Diff(w, got); d != "" {
			return errors.New(d)
		}
		return nil
	})
	return evs
}

func (s *site) left(via transport, why reason) float64 { return testutil.ToFloat64(s.m.left[via][why]) }

func counts(t testing.TB, what string, want float64, get func() float64) {
	t.Helper()
	waittest.Until(t, func() error {
		if got := get(); got != want {
			return fmt.Errorf("%s is %v, want %v", what, got, want)
		}
		return nil
	})
}

func TestLinesOverConnectionsInBothFramings(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1.example"))
	conn := dial(t, "tcp", cfg.TCP)
	line := "<3>1 2026-01-01T12:00:00Z gpu-1.example kernel - - - [%d.000001] " + strings.ReplaceAll(xid(79), "%", "%%")
	counted := fmt.Sprintf(line, 1)
	say(t, conn, "%d %s", len(counted), counted)
	say(t, conn, line+"\n\n", 2)
	counted = fmt.Sprintf(line, 3)
	say(t, conn, "%d %s<13>Jan  1 12:00:00 gpu-1 trainer: %s\r\n", len(counted), counted, xid(79))
	long := fmt.Sprintf(line, 4) + strings.Repeat("x", 3*maxLine)
	say(t, conn, "%d %s", len(long), long)
	say(t, conn, "%s\n", long+"y")
	say(t, conn, line, 5) // without an end
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	evs := s.wants(t, "gpu-1 79", "gpu-1 79", "gpu-1 79", "gpu-1 79", "gpu-1 79", "gpu-1 79")
	counts(t, "lines cut", 2, func() float64 { return testutil.ToFloat64(s.m.cut) })
	if got := testutil.ToFloat64(s.m.lines[overTCP]); got != 7 {
		t.Errorf("%v lines", got)
	}
	if at := evs[0].Time; !at.Equal(collectortest.Now) || !evs[0].Observed.Equal(collectortest.Now) {
		t.Errorf("told at %v", at)
	}
}

func TestAStreamThatIsNoneIsClosedAndCounted(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	for _, nonsense := range []string{"99999999999 x", "12x<3>"} {
		conn := dial(t, "tcp", cfg.TCP)
		say(t, conn, "%s", nonsense)
		if b, err := io.ReadAll(conn); err != nil || len(b) > 0 {
			t.Errorf("%s: %q %v", nonsense, b, err)
		}
	}
	counts(t, "malformed", 2, func() float64 { return s.left(overTCP, malformed) })
	say(t, dial(t, "tcp", cfg.TCP), "GET / HTTP/1.1\r\n\r\n<3>Jan  1 12:00:00 gpu-1 kernel: %s\n", xid(31))
	s.wants(t, "gpu-1 31")
}

func TestTheSameLineAgainIsTheSameEvent(t *testing.T) {
	cfg := only("udp", free(t, "udp"))
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	conn := dial(t, "udp", cfg.UDP)
	line := "<3>Jan  1 11:59:58 gpu-1 kernel: [   7.000001] " + xid(31)
	counts(t, "lines", 2, func() float64 {
		if testutil.ToFloat64(s.m.lines[overUDP]) < 2 {
			_, _ = fmt.Fprint(conn, line) // refused until something listens
		}
		return min(2, testutil.ToFloat64(s.m.lines[overUDP]))
	})
	waittest.For(t, "two events", func() bool { return len(s.rec.Events()) >= 2 })
	evs := s.rec.Events()
	if evs[0].ID != evs[1].ID || evs[0].Time.Format(time.TimeOnly) != "11:59:58" {
		t.Errorf("%+v", evs)
	}
}

func TestWhoseALineIs(t *testing.T) {
	ip := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	resources := []schemas.Resource{
		server("gpu-1", "gpu-1.example", schemas.AttrRedfishURL, "https://10.0.9.1", schemas.AttrIPMIIP, "10.0.9.1:623"),
		{ID: "gpu-1/nic0", Kind: schemas.KindNIC, Parent: "gpu-1", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrIP: "10.0.0.1, fd00::1"})},
		server("gpu-2", "10.0.0.2"),
		server("gpu-3", "node3.cluster"),
		{ID: "gpu-4", Kind: schemas.KindServer},
		server("gpu-5", "10.0.0.7"), server("gpu-6", "10.0.0.7"),
		server("east", "a.twin"), server("west", "b.twin"), server("x1", "twin.east"), server("x2", "twin.west"),
	}
	cfg := Default()
	cfg.Relays = []string{"10.0.0.100", "relay.example"}
	r, err := newReceiver(*cfg, collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	r.Place(resources)
	for _, tc := range []struct {
		name, addr, cert, says string
		want                   string
		why                    reason
	}{
		{"its NIC", "10.0.0.1", "", "gpu-1", "gpu-1", kept},
		{"its other address", "fd00::1", "", "", "gpu-1", kept},
		{"its address, whatever it calls itself", "10.0.0.2", "", "localhost", "gpu-2", kept},
		{"an address that says it is another", "10.0.0.2", "", "gpu-1.example", "", forged},
		{"its board controller", "10.0.9.1", "", "gpu-1", "", controller},
		{"a server without an address, by name", "10.0.5.5", "", "NODE3.cluster.", "gpu-3", kept},
		{"the same by its short name", "10.0.5.5", "", "node3", "gpu-3", kept},
		{"a name whose server has an address", "10.0.5.5", "", "gpu-2", "", forged},
		{"nobody", "10.0.5.5", "", "printer", "", stranger},
		{"an address of two", "10.0.0.7", "", "", "", stranger},
		{"a first label of two", "10.0.5.5", "", "twin", "", stranger},
		{"a server that is not read", "10.0.5.5", "", "gpu-4", "", notRead},
		{"a relay", "10.0.0.100", "", "gpu-1", "gpu-1", kept},
		{"a relay, by address", "10.0.0.100", "", "10.0.0.2", "gpu-2", kept},
		{"a relay of strangers", "10.0.0.100", "", "printer", "", stranger},
		{"a relay by its certificate", "10.0.5.5", "relay.example", "gpu-2", "gpu-2", kept},
		{"a certificate", "10.0.5.5", "gpu-1.example", "gpu-1", "gpu-1", kept},
		{"a certificate from a relay's address", "10.0.0.100", "gpu-1.example", "gpu-2", "", forged},
		{"a certificate that says it is another", "10.0.0.2", "gpu-1.example", "gpu-2", "", forged},
		{"a certificate of nobody", "10.0.0.1", "laptop.example", "gpu-1", "", stranger},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var names []string
			if tc.cert != "" {
				names = []string{tc.cert}
			}
			o := r.from(ip(tc.addr), names)
			for range 2 { // the second from what is remembered
				h, why := r.whose(o, tc.says)
				got := ""
				if h != nil {
					got = h.id
				}
				if got != tc.want || why != tc.why {
					t.Errorf("%q %s, want %q %s", got, reasons[why], tc.want, reasons[tc.why])
				}
			}
		})
	}
	// The inventory changes while a connection stands.
	o := r.from(ip("10.0.0.1"), nil)
	first, _ := r.whose(o, "")
	r.Place(resources)
	if again, _ := r.whose(o, ""); again != first {
		t.Error("a server that stays is another host")
	}
	r.Place(nil)
	if h, why := r.whose(o, ""); h != nil || why != stranger {
		t.Errorf("a server that is gone: %v", reasons[why])
	}
}

func TestLinesOfAForgedNameAreCountedAndToldOnce(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	cfg.Relays = []string{"127.0.0.1"}
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	conn := dial(t, "tcp", cfg.TCP)
	for range 3 {
		say(t, conn, "<3>Jan  1 12:00:00 other kernel: %s\n", xid(79))
	}
	say(t, conn, "<3>Jan  1 12:00:00 gpu-1 kernel: %s\n", xid(31))
	s.wants(t, "gpu-1 31")
	counts(t, "strangers", 3, func() float64 { return s.left(overTCP, stranger) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) != 1 {
		t.Errorf("told %v", s.told)
	}
}

func TestWhoIsInNoNetworkIsNotLetIn(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	cfg.UDP, cfg.Networks = free(t, "udp"), []string{"10.0.0.0/8"}
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	conn := dial(t, "tcp", cfg.TCP)
	if b, err := io.ReadAll(conn); len(b) > 0 {
		t.Errorf("%q %v", b, err)
	}
	say(t, dial(t, "udp", cfg.UDP), "<3>Jan  1 12:00:00 gpu-1 kernel: %s", xid(79))
	counts(t, "refused", 2, func() float64 { return testutil.ToFloat64(s.m.refused.WithLabelValues("network")) })
	if n := len(s.rec.Events()); n > 0 {
		t.Errorf("%d events", n)
	}
}

func TestAFloodHarmsItselfAlone(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	cfg.Rate, cfg.Relays = 10, []string{"127.0.0.1"}
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"), server("gpu-2", "gpu-2"))
	conn := dial(t, "tcp", cfg.TCP)
	var b bytes.Buffer
	for range 5000 {
		b.WriteString("<6>Jan  1 12:00:00 gpu-1 kernel: perf: interrupt took too long\n")
	}
	say(t, conn, "%s<3>Jan  1 12:00:00 gpu-2 kernel: %s\n", b.String(), xid(79))
	s.wants(t, "gpu-2 79")
	counts(t, "lines beyond the rate", 5000-burstSeconds*10, func() float64 { return s.left(overTCP, tooMany) })
}

// A sender has one rate, however many connections it opens and over whatever it sends.
func TestTheConnectionsOfASenderShareItsRate(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	cfg.Rate, cfg.UDP = 10, free(t, "udp")
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	line := "<6>Jan  1 12:00:00 gpu-1 kernel: perf: interrupt took too long\n"
	lines := strings.Repeat(line, burstSeconds*cfg.Rate/4)
	taken := func() float64 { return testutil.ToFloat64(s.m.lines[overTCP]) }
	for i := range 4 { // no one of them more than a quarter of what may be said at once
		say(t, dial(t, "tcp", cfg.TCP), "%s", lines)
		counts(t, "lines", float64((i+1)*burstSeconds*cfg.Rate/4), taken)
	}
	if waited := testutil.ToFloat64(s.m.waited); waited != 0 {
		t.Errorf("within the rate it waited %v s", waited)
	}
	say(t, dial(t, "tcp", cfg.TCP), "%s%s", line, line)
	waittest.For(t, "a fifth connection does not wait", func() bool { return testutil.ToFloat64(s.m.waited) > 0 })
	say(t, dial(t, "udp", cfg.UDP), "%s", line)
	counts(t, "datagrams beyond the rate", 1, func() float64 { return s.left(overUDP, tooMany) })
}

func TestAConnectionWaitsForABusThatIsSlow(t *testing.T) {
	cfg := only("tcp", free(t, "tcp"))
	rec := collectortest.NewRecorder()
	rec.Fail(errors.New("bus is away"))
	s := begin(t, cfg, collectortest.Settings(), rec, server("gpu-1", "gpu-1"))
	conn := dial(t, "tcp", cfg.TCP)
	const n = 2*queueLength + emitAtOnce
	var b bytes.Buffer
	var want []string
	for i := range n {
		fmt.Fprintf(&b, "<3>Jan  1 12:00:00 gpu-1 kernel: [%d.000001] %s\n", i, xid(31))
		want = append(want, "gpu-1 31")
	}
	say(t, conn, "%s", b.String())
	waittest.For(t, "a full queue", func() bool { return len(s.senders.Load().hosts["gpu-1"].queue) == queueLength })
	rec.Fail(nil)
	s.wants(t, want...)
	if got := s.left(overTCP, overflow); got != 0 {
		t.Errorf("%v lines were lost", got)
	}
}

func TestTLSWithCertificatesOfServers(t *testing.T) {
	ca, other := certtest.New(t), certtest.New(t)
	until := time.Now().Add(time.Hour)
	own, client, foreign := ca.Issue(t, until, "127.0.0.1"), ca.Issue(t, until, "gpu-1.example"), other.Issue(t, until, "gpu-1.example")
	cfg := only("tls", free(t, "tcp"))
	cfg.TLS.Server = trust.Server{CertFile: own.CertFile, KeyFile: own.KeyFile, ClientCAFile: ca.File}
	if err := cfg.CheckFiles(); err != nil {
		t.Fatal(err)
	}
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1.example"), server("gpu-2", "gpu-2"))
	send := func(leaf tls.Certificate, host string, code int) error {
		raw := dial(t, "tcp", cfg.TLS.Listen)
		conn := tls.Client(raw, &tls.Config{ServerName: "127.0.0.1", RootCAs: ca.Pool, Certificates: []tls.Certificate{leaf}})
		if _, err := fmt.Fprintf(conn, "<3>Jan  1 12:00:00 %s kernel: %s\n", host, xid(code)); err != nil {
			return err
		}
		if err := conn.CloseWrite(); err != nil {
			return err
		}
		_, err := io.ReadAll(conn)
		return err
	}
	if err := send(client.Certificate, "gpu-1", 79); err != nil {
		t.Fatal(err)
	}
	if err := send(client.Certificate, "gpu-2", 48); err != nil {
		t.Fatal(err)
	}
	if err := send(foreign.Certificate, "gpu-1", 31); err == nil {
		t.Error("a certificate of another authority is accepted")
	}
	s.wants(t, "gpu-1 79")
	counts(t, "forged", 1, func() float64 { return s.left(overTLS, forged) })
	counts(t, "handshakes that failed", 1, func() float64 { return testutil.ToFloat64(s.m.refused.WithLabelValues("tls")) })
}

// exported is an entry in the export format.
func exported(i int, boot, transport, host, message string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "__CURSOR=s=5f0c;i=%x;b=%s;m=1;t=2;x=3\n__REALTIME_TIMESTAMP=%d\n_BOOT_ID=%s\n_TRANSPORT=%s\n_HOSTNAME=%s\nPRIORITY=3\n",
		i, boot, collectortest.Now.UnixMicro()+int64(i), boot, transport, host)
	for _, m := range more {
		b.WriteString(m + "\n")
	}
	b.WriteString("MESSAGE\n")
	_ = binary.Write(&b, binary.LittleEndian, uint64(len(message)))
	b.WriteString(message + "\n\n")
	return b.String()
}

func kernelEntry(i int, message string) string {
	return exported(i, "b1", "kernel", "gpu-1", message, "SYSLOG_IDENTIFIER=kernel", "SYSLOG_FACILITY=0")
}

// post uploads and returns the status, 0 where there was none.
func post(ctx context.Context, addr string, body io.Reader) int {
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/upload", body)
	q.Header.Set("Content-Type", journalType)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := client.Do(q)
	if err != nil {
		return 0
	}
	_ = a.Body.Close()
	return a.StatusCode
}

// uploaded posts until something answers.
func uploaded(t testing.TB, addr, body string, want int) {
	t.Helper()
	waittest.Until(t, func() error {
		if got := post(t.Context(), addr, struct{ io.Reader }{strings.NewReader(body)}); got != want {
			return fmt.Errorf("status %d, want %d", got, want)
		}
		return nil
	})
}

func TestAnUploadOfAJournal(t *testing.T) {
	cfg := only("journal", free(t, "tcp"))
	s := begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	addr := cfg.Journal.Listen
	old := strings.Replace(kernelEntry(9, xid(48)), strconv.FormatInt(collectortest.Now.UnixMicro()+9, 10), "1000000", 1)
	uploaded(t, addr, strings.Join([]string{
		kernelEntry(1, "Linux version 6.8.0"),
		kernelEntry(2, xid(79)+"\n"+xid(63)),
		exported(3, "b1", "syslog", "gpu-1", xid(31), "SYSLOG_IDENTIFIER=kernel", "SYSLOG_FACILITY=0", "_PID=7", "_COMM=logger"),
		exported(4, "b1", "syslog", "gpu-1", "nvidia-dcgm.service: Failed with result 'exit-code'.", "SYSLOG_IDENTIFIER=systemd", "_PID=812"),
		exported(5, "b1", "journal", "gpu-1", "nvidia-dcgm.service: Failed with result 'exit-code'.", "SYSLOG_IDENTIFIER=systemd", "_PID=1"),
		exported(6, "b1", "syslog", "gpu-1", "detected NVSwitch fatal error 20034 on fid 0", "SYSLOG_IDENTIFIER=nvidia-fabricmanager", "_PID=9", "_SYSTEMD_UNIT=session-1.scope"),
		exported(7, "b1", "stdout", "gpu-1", "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0", "SYSLOG_IDENTIFIER=nv-fabricmanager", "_PID=9", "_SYSTEMD_UNIT=nvidia-fabricmanager.service", "COREDUMP="+strings.Repeat("x", 4<<10)),
		"lower=case\nno-field\n\n",
		old,
		exported(10, "b1", "kernel", "printer", xid(79)),
	}, ""), http.StatusAccepted)
	// What was acknowledged is durable already.
	s.wants(t, "gpu-1 boot", "gpu-1 79", "gpu-1 63", "gpu-1 nvidia-dcgm", "gpu-1 20034")
	for why, want := range map[reason]float64{stranger: 1, malformed: 1, tooOld: 1, known: 0} {
		if got := s.left(overJournal, why); got != want {
			t.Errorf("%v left out as %s, want %v", got, reasons[why], want)
		}
	}
	uploaded(t, addr, kernelEntry(8, xid(94))+kernelEntry(9, xid(48))+kernelEntry(11, "reboot: Restarting system")+
		exported(12, "b2", "kernel", "gpu-1", "Linux version 6.8.0")+exported(13, "b3", "kernel", "gpu-1", "Linux version 6.8.0"), http.StatusAccepted)
	s.wants(t, "gpu-1 boot", "gpu-1 79", "gpu-1 63", "gpu-1 nvidia-dcgm", "gpu-1 20034", "gpu-1 clean", "gpu-1 unclean")
	if got := s.left(overJournal, known); got != 2 {
		t.Errorf("%v known entries", got)
	}
}

func TestAnUploadThatIsNoneIsRefused(t *testing.T) {
	cfg := only("journal", free(t, "tcp"))
	begin(t, cfg, collectortest.Settings(), collectortest.NewRecorder(), server("gpu-1", "gpu-1"))
	url := "http://" + cfg.Journal.Listen
	_ = dial(t, "tcp", cfg.Journal.Listen).Close()
	for name, tc := range map[string]struct {
		method, path, kind string
		want               int
	}{
		"another type":   {http.MethodPost, "/upload", "text/plain", http.StatusUnsupportedMediaType},
		"another path":   {http.MethodPost, "/", journalType, http.StatusNotFound},
		"another method": {http.MethodGet, "/upload", journalType, http.StatusMethodNotAllowed},
	} {
		q, _ := http.NewRequestWithContext(t.Context(), tc.method, url+tc.path, strings.NewReader("MESSAGE=x\n\n"))
		q.Header.Set("Content-Type", tc.kind)
		a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != tc.want {
			t.Errorf("%s: %d, want %d", name, a.StatusCode, tc.want)
		}
	}
}

// A process that is killed before or after it has told an event, and has kept no position since,
// has not answered the upload: the same is sent again, and counts once.
func TestAnUploadThatIsSentAgainAfterAKillCountsOnce(t *testing.T) {
	for name, mute := range map[string]bool{"before the event": true, "after the event": false} {
		t.Run(name, func(t *testing.T) {
			s, rec := collectortest.Settings(), collectortest.NewRecorder()
			body := kernelEntry(1, xid(79)) + kernelEntry(2, "nothing") + kernelEntry(3, xid(48))
			cfg := only("journal", free(t, "tcp"))
			before := begin(t, cfg, s, rec, server("gpu-1", "gpu-1"))
			uploaded(t, cfg.Journal.Listen, kernelEntry(0, "Linux version 6.8.0"), http.StatusAccepted)
			before.end()

			killed := &collectortest.Mortal{Cursors: s.Cursors, Emitter: rec, Mute: mute}
			mortal := s
			mortal.Cursors = killed
			dying := begin(t, cfg, mortal, killed, server("gpu-1", "gpu-1"))
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan int, 1)
			waittest.Until(t, func() error { // it listens
				c, err := net.Dial("tcp", cfg.Journal.Listen)
				if err == nil {
					_ = c.Close()
				}
				return err
			})
			go func() { answered <- post(ctx, cfg.Journal.Listen, strings.NewReader(body)) }()
			waittest.For(t, "the kill", killed.Dead)
			cancel()
			if got := <-answered; got == http.StatusAccepted {
				t.Error("an upload whose events are not durable was acknowledged")
			}
			dying.end()

			after := begin(t, cfg, s, rec, server("gpu-1", "gpu-1"))
			for range 2 {
				uploaded(t, cfg.Journal.Listen, body, http.StatusAccepted)
			}
			ids := map[string]string{}
			for _, ev := range rec.Events() {
				ids[ev.ID] = ev.Code
			}
			got := map[string]int{}
			for _, code := range ids {
				got[code]++
			}
			if d := cmp.Diff(map[string]int{"boot": 1, "79": 1, "48": 1}, got); d != "" {
				t.Error(d)
			}
			if n := after.left(overJournal, known); n < 3 {
				t.Errorf("%v entries were known the second time", n)
			}
		})
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"udp: 0.0.0.0:514 listens beyond this machine, and anybody could write as any server: name in networks who may send, or set client_ca_file": func(c *Config) { c.UDP = "0.0.0.0:514" },
		`networks: "10.0.0/8" is no network; write it as 10.7.0.0/16`:                                                                               func(c *Config) { c.Networks = []string{"10.0.0/8"} },
		"tls: set cert_file and key_file":                                                                func(c *Config) { c.TLS.Listen = "127.0.0.1:6514" },
		"tls: set both cert_file and key_file, or neither":                                               func(c *Config) { c.TLS.CertFile = "x" },
		"journal: client_ca_file: set cert_file and key_file too: only TLS shows a client's certificate": func(c *Config) { c.Journal.ClientCAFile = "x" },
		`tcp: port "x"; want 1 to 65535`:                                                                 func(c *Config) { c.TCP = "127.0.0.1:x" },
		"rate must be at least 1":                                                                        func(c *Config) { c.Rate = 0 },
		"connections must be at least 1":                                                                 func(c *Config) { c.Connections = 0 },
		"journal_age and silent_after must be positive":                                                  func(c *Config) { c.SilentAfter = 0 },
	} {
		c := Default()
		change(c)
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := Default()
	c.UDP, c.Networks = "0.0.0.0:514", []string{"10.0.0.0/8", "fd00::1"}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Journal.Server = trust.Server{CertFile: "/nowhere", KeyFile: "/nowhere"}
	if err := c.CheckFiles(); err == nil || !strings.HasPrefix(err.Error(), "journal.cert_file: ") {
		t.Error(err)
	}
	if _, err := c.New(schemas.Resource{ID: "x", Kind: schemas.KindServer}, collectors.Settings{}); err == nil {
		t.Error("a server that does not send is accepted")
	}
}

func TestSilenceIsCountedAndNoLoss(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := collectortest.Settings()
	s.Metrics = reg
	r, err := newReceiver(*Default(), s)
	if err != nil {
		t.Fatal(err)
	}
	one := &sender{r: r, settings: s}
	one.setSilent(true)
	one.setSilent(true)
	if got := testutil.ToFloat64(r.m.silent); got != 1 {
		t.Errorf("%v silent", got)
	}
	one.setSilent(false)
	if got := testutil.ToFloat64(r.m.silent); got != 0 {
		t.Errorf("%v silent", got)
	}
	if Default().LossType() != "" {
		t.Error("a silent server is told as unreachable")
	}
}

func FuzzFramer(f *testing.F) {
	f.Add([]byte("5 <3>abc<3>line\n10 <3>1 - - - "), uint8(3))
	f.Add([]byte("99999 x"), uint8(1))
	f.Add([]byte("<3>\r\n\n\n7 <3>a\nb8 <3>\n"), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		read := func(step int) (out []string, last error) {
			fr := framer{r: &steps{b: b, n: step}, cut: func() {}}
			for {
				line, err := fr.next()
				if err != nil {
					return out, err
				}
				if len(line) > maxLine || line == "" {
					t.Fatalf("a line of %d bytes", len(line))
				}
				out = append(out, line)
			}
		}
		// However a stream is cut into packets, its lines are the same.
		whole, err := read(len(b) + 1)
		parts, err2 := read(int(step) + 1)
		if d := cmp.Diff(whole, parts); d != "" || errors.Is(err, io.EOF) != errors.Is(err2, io.EOF) {
			t.Errorf("%s %v %v", d, err, err2)
		}
	})
}

// What was kept as a position is read as it was, and a cursor of journald whatever it holds.
func FuzzPosition(f *testing.F) {
	f.Add("5f0c 1a b1 true")
	f.Add("s=5f0c;i=1a;b=b1;m=1;t=2;x=3")
	f.Add("s= x;i=ffffffffffffffffff")
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := parsePosition(text); ok {
			if again, ok := parsePosition(p.String()); !ok || again != p {
				t.Errorf("%q: %+v, then %+v", text, p, again)
			}
		}
		if source, sequence, ok := parseCursor(text); ok {
			if p, ok := parsePosition(position{source, sequence, "b", false}.String()); !ok || p.source != source || p.sequence != sequence {
				t.Errorf("%q: the position of %q %d is %+v", text, source, sequence, p)
			}
		}
	})
}

// Whatever is uploaded is answered, and each entry of it is counted.
func FuzzUpload(f *testing.F) {
	f.Add([]byte(kernelEntry(1, xid(79)) + kernelEntry(2, "Linux version 6.8.0")))
	f.Add([]byte("__CURSOR=s=1;i=2\nMESSAGE\n\xff\xff\xff\xff\xff\xff\xff\x7fx\n\n"))
	f.Add([]byte("MESSAGE=a\n\n\n\nlower=b\n\n"))
	r, err := newReceiver(*Default(), collectortest.Settings())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := testutil.ToFloat64(r.m.lines[overJournal])
		q := httptest.NewRequest(http.MethodPost, "/upload", bytes.NewReader(b))
		q.RemoteAddr = "127.0.0.1:7"
		q.Header.Set("Content-Type", journalType)
		w := httptest.NewRecorder()
		r.upload(w, q)
		if w.Code != http.StatusAccepted && w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d", w.Code)
		}
		if bytes.Contains(b, []byte("MESSAGE=")) && bytes.HasSuffix(b, []byte("\n\n")) && w.Code == http.StatusAccepted && testutil.ToFloat64(r.m.lines[overJournal]) == before {
			t.Error("an entry is not counted")
		}
	})
}

// steps gives n bytes at a time.
type steps struct {
	b []byte
	n int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(s.n, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

// BenchmarkStream is what a line costs that means nothing, from the bytes of a connection on.
func BenchmarkStream(b *testing.B) {
	r, err := newReceiver(*Default(), collectortest.Settings())
	if err != nil {
		b.Fatal(err)
	}
	r.Place([]schemas.Resource{server("gpu-1", "gpu-1")})
	o := r.from(netip.MustParseAddr("127.0.0.1"), nil)
	text := strings.Repeat("<6>Jan  1 12:00:00 gpu-1 kernel: [12345.678901] docker0: port 3(veth12ab) entered disabled state\n", 4096)
	f := framer{r: &again{b: []byte(text)}, cut: func() {}}
	b.ReportAllocs()
	for b.Loop() {
		line, err := f.next()
		if err != nil {
			b.Fatal(err)
		}
		if err := r.line(b.Context(), o, overTCP, line, collectortest.Now); err != nil {
			b.Fatal(err)
		}
	}
}

// again gives the same bytes for ever.
type again struct {
	b  []byte
	at int
}

func (a *again) Read(p []byte) (int, error) {
	n := copy(p, a.b[a.at:])
	a.at = (a.at + n) % len(a.b)
	return n, nil
}
