package ipmi

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/schemas"
)

func target(addr string) schemas.Resource {
	return schemas.Resource{ID: "gpu-r01-01", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
		schemas.AttrIPMIIP: addr, schemas.AttrCredential: "bmc",
	})}
}

func TestConformance(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			return target(ipmitest.Start(t, ipmitest.Load(t, filepath.Join(input, "bmc.yaml"))).Addr)
		},
		Garbage: func(t testing.TB) schemas.Resource { return target(ipmitest.Garbage(t)) },
		Dead:    target("127.0.0.1:1"), At: target, Datagrams: true,
		Ignore: []goleak.Option{goleak.IgnoreAnyFunction("github.com/bougou/go-ipmi/pkg/server.(*Server).runSessionEviction")},
	})
}

// log drives a reader by hand against a controller.
type log struct {
	t   *testing.T
	bmc *ipmitest.BMC
	r   *reader
	rec *collectortest.Recorder
	s   collectors.Settings
	n   int
}

func newLog(t *testing.T, change func(*Config)) *log {
	t.Helper()
	cfg := DefaultConfig()
	cfg.SensorInterval, cfg.Backlog, cfg.Timeout = 0, 0, 30*time.Second
	if change != nil {
		change(cfg)
	}
	l := &log{t: t, s: collectortest.Settings(), rec: collectortest.NewRecorder()}
	l.bmc = ipmitest.Start(t, ipmitest.State{Clock: collectortest.Now})
	l.restart(cfg)
	return l
}

func (l *log) restart(cfg *Config) {
	l.t.Helper()
	c, err := cfg.New(target(l.bmc.Addr), l.s)
	if err != nil {
		l.t.Fatal(err)
	}
	l.r = c.(*reader)
	if err := l.r.conn.SetCredentials("admin", "secret"); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.r.conn.Close(l.t.Context()) })
}

func (l *log) add(id uint16) {
	l.n++
	at := uint32(collectortest.Now.Unix()) + uint32(l.n)
	l.bmc.Add(ipmitest.Record(id, at, 0x08, 0x30, 0x6f, 0x03))
}

// poll returns the numbers of the records that one poll emitted.
func (l *log) poll() (ids []string) {
	l.t.Helper()
	before := len(l.rec.Events())
	if err := l.r.poll(l.t.Context(), l.rec); err != nil {
		l.t.Fatal(err)
	}
	for _, ev := range l.rec.Events()[before:] {
		ids = append(ids, ev.Attr("record"))
	}
	return ids
}

func TestTheLogIsReadFromWhereItWasLeft(t *testing.T) {
	l := newLog(t, nil)
	want := func(ids ...string) {
		t.Helper()
		if d := cmp.Diff(ids, l.poll()); d != "" {
			t.Errorf("records (-want +got):\n%s", d)
		}
	}
	want()
	l.add(1)
	l.add(2)
	want("1", "2")
	want()
	l.add(7) // ids need not be consecutive
	l.restart(l.r.cfg)
	want("7")
	// A cleared log begins again, also when its ids do.
	l.bmc.Clear(1767268900)
	l.add(1)
	want("1")
	// Erased within the same second and filled again: same epoch and id, other content.
	l.bmc.Clear(1767268900)
	l.add(1)
	l.add(2)
	want("1", "2")
	l.bmc.Clear(1767268900)
	want()
	l.add(1)
	want("1")
	seen := make(map[string]bool)
	for _, ev := range l.rec.Events() {
		if seen[ev.ID] {
			t.Errorf("two records have the id %s", ev.ID)
		}
		seen[ev.ID] = true
	}
}

func TestALongLogGoesOutInChunks(t *testing.T) {
	l := newLog(t, nil)
	for i := range 2*chunk + 5 {
		l.add(uint16(i + 1))
	}
	ids := l.poll()
	if len(ids) != 2*chunk+5 || ids[0] != "1" || ids[len(ids)-1] != strconv.Itoa(2*chunk+5) {
		t.Errorf("%d records, from %s to %s", len(ids), ids[0], ids[len(ids)-1])
	}
}

func TestAnIdleLogCostsOneCommand(t *testing.T) {
	l := newLog(t, nil)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	l.add(1)
	l.poll()
	now = now.Add(settle)
	l.poll()
	before := l.bmc.Commands(types.CommandGetSELEntry)
	l.poll()
	if n := l.bmc.Commands(types.CommandGetSELEntry) - before; n != 0 {
		t.Errorf("%d records read of an idle log", n)
	}
}

func TestWhatTheBusDidNotTakeIsReadAgain(t *testing.T) {
	l := newLog(t, nil)
	l.add(1)
	l.rec.Fail(fmt.Errorf("bus is closed"))
	if err := l.r.poll(t.Context(), l.rec); err == nil {
		t.Fatal("no error")
	}
	l.rec.Fail(nil)
	if d := cmp.Diff([]string{"1"}, l.poll()); d != "" {
		t.Error(d)
	}
}

func TestOldRecordsOfANewControllerAreLeftOut(t *testing.T) {
	l := newLog(t, func(c *Config) { c.Backlog = time.Hour })
	old := uint32(collectortest.Now.Add(-2 * time.Hour).Unix())
	l.bmc.Add(ipmitest.Record(1, old, 0x08, 0x30, 0x6f, 0x03))
	l.bmc.Add(ipmitest.Record(2, old+7000, 0x08, 0x30, 0x6f, 0x03))
	if d := cmp.Diff([]string{"2"}, l.poll()); d != "" {
		t.Error(d)
	}
	// Once the log is known, age does not matter: a controller that came back.
	l.bmc.Add(ipmitest.Record(3, old, 0x08, 0x30, 0x6f, 0x83))
	if d := cmp.Diff([]string{"3"}, l.poll()); d != "" {
		t.Error(d)
	}
}

func TestRecordsThatCannotBeDecodedAreShown(t *testing.T) {
	l := newLog(t, nil)
	bad := ipmitest.Record(1, 1767268800, 0x08, 0x30, 0x6f, 0x03)
	bad[2] = 0x7f
	l.bmc.Add(bad)
	l.add(2)
	if d := cmp.Diff([]string{"1", "2"}, l.poll()); d != "" {
		t.Error(d)
	}
	if ev := l.rec.Events()[0]; ev.Type != "bmc.sel" || ev.Attr("raw") == "" || ev.Message == "" {
		t.Errorf("event of an unknown record: %+v", ev)
	}
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Interval = 0 }, func(c *Config) { c.Jitter = 2 }, func(c *Config) { c.Timeout = 0 },
		func(c *Config) { c.CipherSuites = []int{99} }, func(c *Config) { c.Backlog = -1 },
	} {
		cfg := DefaultConfig()
		change(cfg)
		if cfg.Validate() == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if _, err := DefaultConfig().New(target("host:port:x"), collectortest.Settings()); err == nil {
		t.Error("a bad address is taken")
	}
}

func TestATruncatedRecordHidesNoOther(t *testing.T) {
	l := newLog(t, nil)
	l.add(1)
	l.bmc.Add(ipmitest.Record(2, uint32(collectortest.Now.Unix()), 0x01, 1, 0x01, 0x57, 0, 0)[:9])
	l.add(3)
	if d := cmp.Diff([]string{"1", "3"}, l.poll()); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
}

func TestALogThatGoesInCirclesEnds(t *testing.T) {
	l := newLog(t, nil)
	for _, id := range []uint16{1, 2, 1} {
		l.add(id)
	}
	got := map[string]bool{}
	for _, id := range l.poll() {
		got[id] = true
	}
	if !got["1"] || !got["2"] || len(got) != 2 {
		t.Errorf("records %v, want 1 and 2", got)
	}
}
