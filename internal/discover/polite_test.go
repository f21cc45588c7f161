package discover_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/internal/bmc"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// crowd is many addresses that take connections and never answer; some of them hang up.
type crowd struct {
	port int

	mu          sync.Mutex
	began       []time.Time
	now, most   int // connections
	connections map[string]int
}

func newCrowd(t *testing.T, addresses []string, tarpit func(n int) bool) *crowd {
	t.Helper()
	c := &crowd{connections: map[string]int{}}
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // after the listeners are closed
	for n, a := range addresses {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", a+":"+strconv.Itoa(c.port))
		if err != nil {
			t.Fatal(err)
		}
		c.port = l.Addr().(*net.TCPAddr).Port
		all.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.mu.Lock()
				c.began = append(c.began, time.Now())
				c.connections[a]++
				c.now++
				c.most = max(c.most, c.now)
				c.mu.Unlock()
				all.Go(func() {
					defer func() { _ = conn.Close() }()
					if tarpit(n) {
						_, _ = io.Copy(io.Discard, conn) // until the other end has enough
					} else {
						_, _ = conn.Read(make([]byte, 1))
					}
					c.mu.Lock()
					c.now--
					c.mu.Unlock()
				})
			}
		})
		t.Cleanup(func() { _ = l.Close() })
	}
	return c
}

// swept sweeps the addresses of a crowd, at 40 a second and four at a time, and returns how long it took.
func swept(t *testing.T, addresses int, tarpit bool) (*crowd, time.Duration) {
	t.Helper()
	var all []string
	for n := range addresses {
		all = append(all, "127.0.12."+strconv.Itoa(n+1))
	}
	crowd := newCrowd(t, all, func(int) bool { return tarpit })
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := discover.DefaultConfig()
	cfg.Ranges, cfg.Ports, cfg.Rate, cfg.Workers, cfg.Timeout = []string{"127.0.12.0/26"}, []string{"1024-65535"}, 40, 4, time.Second
	r := discover.NewRunner(cfg, discover.Deps{
		Sweeps: discoveries.New(db), Inventory: inv, TLS: func() (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS12}, nil }, Gate: bmc.NewGate(),
		Holder: "one", Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	defer func() { cancel(); <-done }()
	d, err := discoveries.New(db).Start(t.Context(), "ana", schemas.Discovery{
		Ranges: []string{"127.0.12.0/26"}, Addresses: 62, RedfishPorts: []int{crowd.port}, IPMIPorts: []int{},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	d = ended(t, db, d.ID)
	took := time.Since(began)
	crowd.mu.Lock()
	defer crowd.mu.Unlock()
	if d.Status != schemas.DiscoveryCompleted || d.Silent != 62 || len(crowd.connections) != addresses {
		t.Errorf("%+v, of %d addresses", d, len(crowd.connections))
	}
	for a, n := range crowd.connections {
		if n != 1 {
			t.Errorf("%s was asked over %d connections", a, n)
		}
	}
	return crowd, took
}

// TestASweepIsAsPoliteAsItIsToldToBe counts what reaches 60 addresses: so many begin in a second, each over one connection.
func TestASweepIsAsPoliteAsItIsToldToBe(t *testing.T) {
	crowd, took := swept(t, 60, false)
	if least := 61 * time.Second / 40; took < least {
		t.Errorf("it took %v", took)
	}
	slices.SortFunc(crowd.began, time.Time.Compare)
	for i := range crowd.began {
		n := 0
		for _, at := range crowd.began[i:] {
			if at.Sub(crowd.began[i]) < time.Second {
				n++
			}
		}
		if n > 40+12 { // without a bound all of them; a busy machine takes some together
			t.Errorf("%d connections began in a second", n)
			break
		}
	}
}

// TestWhoNeverAnswersIsOneOfFew: four are asked at a time, and wait for who takes a second to be given up.
func TestWhoNeverAnswersIsOneOfFew(t *testing.T) {
	crowd, took := swept(t, 20, true)
	if took > 20*time.Second { // one after the other it is as long at least
		t.Errorf("it took %v", took)
	}
	if crowd.most > 4+3 { // without a bound all of them; that one has been hung up on is seen a moment later
		t.Errorf("%d connections at a time", crowd.most)
	}
}

func TestARangeThatIsTooLargeIsRefusedInASentence(t *testing.T) {
	cfg := discover.DefaultConfig()
	cfg.Ranges = []string{"10.0.0.0/8", "fd00::/8"}
	for ranges, want := range map[string]string{
		"10.20.0.0/16": "ranges have 65536 addresses together; a sweep has at most 4096 (discovery.max_addresses)",
		"10.0.0.0/8":   "ranges have 16777216 addresses together; a sweep has at most 4096 (discovery.max_addresses)",
		"fd00::/64":    "ranges have 1.845e+19 addresses together; a sweep has at most 4096 (discovery.max_addresses)",
	} {
		if _, err := cfg.Plan([]string{ranges}, 443); err == nil || err.Error() != want {
			t.Errorf("%s: %v", ranges, err)
		}
	}
	all, err := cfg.Plan([]string{"10.20.0.0/20"}, 443)
	if err != nil || len(all) != 4094 || all[0] != netip.MustParseAddr("10.20.0.1") {
		t.Errorf("%d addresses, %v", len(all), err)
	}
	if _, err := cfg.Plan([]string{"11.0.0.0/30"}, 443); err == nil || !strings.Contains(err.Error(), "11.0.0.0/30 may not be swept") {
		t.Error(err)
	}
}
