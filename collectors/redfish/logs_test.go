package redfish

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/bmc/redfish/redfishtest"
)

const entries = "/redfish/v1/Systems/1/LogServices/SEL/Entries"

// log drives a reader by hand against a service with one log.
type log struct {
	t       *testing.T
	tree    *redfishtest.Tree
	url     string
	r       *reader
	rec     *collectortest.Recorder
	s       collectors.Settings
	members []any
	reverse bool
	shuffle bool
	asLinks bool
	made    int // entries so far
}

func link(p string) map[string]any { return map[string]any{"@odata.id": p} }

func newLog(t *testing.T, topSkip bool) *log {
	t.Helper()
	l := &log{t: t, s: collectortest.Settings(), rec: collectortest.NewRecorder()}
	l.tree = redfishtest.New(map[string]map[string]any{
		"/redfish/v1": {
			"Systems":                   link("/redfish/v1/Systems"),
			"ProtocolFeaturesSupported": map[string]any{"TopSkipQuery": topSkip, "ExpandQuery": map[string]any{"NoLinks": true}},
		},
		"/redfish/v1/Systems": {"Members": []any{link("/redfish/v1/Systems/1")}},
		"/redfish/v1/Systems/1": {
			"@odata.id": "/redfish/v1/Systems/1", "PowerState": "On", "LogServices": link("/redfish/v1/Systems/1/LogServices"),
		},
		"/redfish/v1/Systems/1/LogServices":     {"Members": []any{link("/redfish/v1/Systems/1/LogServices/SEL")}},
		"/redfish/v1/Systems/1/LogServices/SEL": {"Id": "SEL", "Entries": link(entries)},
	})
	l.publish()
	l.url = serve(t, l.tree)
	l.restart()
	return l
}

func (l *log) restart() {
	l.t.Helper()
	cfg := DefaultConfig()
	cfg.SensorInterval, cfg.Backlog, cfg.Timeout = 0, 0, time.Minute
	c, err := cfg.New(target(l.url), l.s)
	if err != nil {
		l.t.Fatal(err)
	}
	l.r = c.(*reader)
	if err := l.r.open(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	client := l.r.c
	l.t.Cleanup(func() { client.Close(l.t.Context()) })
}

func (l *log) publish() {
	m := slices.Clone(l.members)
	if l.reverse {
		slices.Reverse(m)
	}
	if l.shuffle {
		rand.Shuffle(len(m), func(i, j int) { m[i], m[j] = m[j], m[i] })
	}
	for i := range m {
		if o, ok := m[i].(map[string]any); ok && l.asLinks {
			l.tree.Set(o["@odata.id"].(string), o)
			m[i] = link(o["@odata.id"].(string))
		}
	}
	l.tree.Set(entries, map[string]any{"@odata.id": entries, "Members": m, "Members@odata.count": len(m)})
}

func (l *log) add(ids ...int) {
	for _, id := range ids {
		l.members = append(l.members, map[string]any{
			"@odata.id": fmt.Sprint(entries, "/", id), "Id": strconv.Itoa(id), "Message": fmt.Sprint("message ", id),
			"Created": collectortest.Now.Add(time.Duration(l.made) * time.Second).Format(time.RFC3339),
		})
		l.made++
	}
	l.publish()
}

// poll returns the entries that one poll emitted.
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

func TestALogIsReadFromWhereItWasLeft(t *testing.T) {
	for _, topSkip := range []bool{true, false} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprintf("top and skip %v, newest first %v", topSkip, reverse), func(t *testing.T) {
				l := newLog(t, topSkip)
				l.reverse = reverse
				want := func(ids ...string) {
					t.Helper()
					if d := cmp.Diff(ids, l.poll()); d != "" {
						t.Errorf("entries (-want +got):\n%s", d)
					}
				}
				want()
				l.add(1, 2, 3)
				want("1", "2", "3")
				want()
				l.add(4)
				l.restart()
				want("4")
				l.add(5, 6)
				want("5", "6")
				// A full log drops its oldest entries.
				l.members = l.members[2:]
				l.add(7)
				want("7")
				// A cleared log begins again.
				l.members = nil
				l.publish()
				want()
				l.members = []any{nil, nil, nil, nil, nil, nil, nil}
				l.add(1, 2)
				l.members = l.members[7:]
				l.publish()
				want("1", "2")
			})
		}
	}
}

func TestAnIdleLogIsNotSentAgain(t *testing.T) {
	l := newLog(t, true)
	l.add(1, 2, 3)
	l.poll()
	l.poll()
	before := l.tree.Requests.Load()
	l.poll()
	if n := l.tree.Requests.Load() - before; n > 2 {
		t.Errorf("%d requests a poll, want one for the log and one for the power state", n)
	}
}

func TestWhatTheBusDidNotTakeIsReadAgain(t *testing.T) {
	l := newLog(t, true)
	l.poll()
	l.add(1)
	l.rec.Fail(fmt.Errorf("bus is closed"))
	if err := l.r.poll(t.Context(), l.rec); err == nil {
		t.Fatal("no error")
	}
	l.rec.Fail(nil)
	l.restart()
	if d := cmp.Diff([]string{"1"}, l.poll()); d != "" {
		t.Error(d)
	}
}

func TestOneBrokenLogHidesNoOther(t *testing.T) {
	l := newLog(t, true)
	l.tree.Set("/redfish/v1/Systems/1/LogServices", map[string]any{"Members": []any{
		link("/redfish/v1/Systems/1/LogServices/Gone"), link("/redfish/v1/Systems/1/LogServices/SEL"),
	}})
	l.tree.Set("/redfish/v1/Systems/1/LogServices/Gone", map[string]any{"Id": "Gone", "Entries": link(entries + "/nowhere")})
	l.add(1)
	if d := cmp.Diff([]string{"1"}, l.poll()); d != "" {
		t.Error(d)
	}
}

func TestAServiceThatMakesNoSenseIsNoContact(t *testing.T) {
	garble := false
	l := newLog(t, true)
	l.add(1)
	tree := l.tree
	l.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if garble && r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"@odata.id": "/redf`))
			return
		}
		tree.ServeHTTP(w, r)
	}))
	l.restart()
	l.poll()
	garble = true
	l.add(2)
	if err := l.r.poll(t.Context(), l.rec); !errors.Is(err, collectors.ErrProtocol) {
		t.Errorf("poll of garbage: %v", err)
	}
	garble = false
	if d := cmp.Diff([]string{"2"}, l.poll()); d != "" {
		t.Errorf("after the garbage (-want +got):\n%s", d)
	}
}

func TestASessionThatTheServiceForgotIsRenewed(t *testing.T) {
	var logins int
	tree := newLog(t, true).tree
	forget := false
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			logins++
		} else if forget {
			forget = false
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		tree.ServeHTTP(w, r)
	}))
	l := &log{t: t, tree: tree, url: url, s: collectortest.Settings(), rec: collectortest.NewRecorder()}
	l.restart()
	l.poll()
	forget = true
	l.poll()
	if logins != 2 {
		t.Errorf("%d logins, want 2", logins)
	}
}

func FuzzMetricValue(f *testing.F) {
	for _, s := range []string{"1.5", "true", "PT1H2M3.5S", "P1D", "LinkUp", "", "NaN", "PT", "P", "1e999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, text, ok := metricValue(s)
		if ok && text == "" && strings.HasPrefix(s, "P") && (math.IsNaN(v) || v < 0) {
			t.Errorf("%q is %v seconds", s, v)
		}
	})
}

func TestALogWhosePagesGoInCirclesHidesNothingElse(t *testing.T) {
	for name, page := range map[string]map[string]any{
		"empty pages": {"Members": []any{}, "Members@odata.nextLink": entries + "?page=2"},
		"huge pages": {
			"Members":                []any{map[string]any{"Id": "1", "Message": strings.Repeat("x", 8<<20)}},
			"Members@odata.nextLink": entries + "?page=2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, false)
			l.tree.Set(entries, page)
			if got := l.poll(); len(got) != 0 {
				t.Errorf("entries %v of a log without end", got)
			}
			if power := l.rec.Lines(); len(power) != 1 || !strings.Contains(power[0], "auspex_server_power_on") {
				t.Errorf("records %q, want the power state", power)
			}
			l.add(1)
			if d := cmp.Diff([]string{"1"}, l.poll()); d != "" {
				t.Errorf("entries when it makes sense again (-want +got):\n%s", d)
			}
		})
	}
}

func TestALogIsAskedForWhatIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		vary func(*log)
		dear bool // only the whole of it can be had
	}{
		"all queries honoured":   {vary: func(*log) {}},
		"newest first":           {vary: func(l *log) { l.reverse = true }},
		"$skip and $top ignored": {vary: func(l *log) { l.tree.Ignores = []string{"$skip", "$top"} }},
		"newest first, the same": {vary: func(l *log) { l.reverse, l.tree.Ignores = true, []string{"$skip", "$top"} }},
		"all queries ignored":    {vary: func(l *log) { l.tree.Ignores = []string{"$skip", "$top", "$filter", "$expand"} }, dear: true},
		"pages":                  {vary: func(l *log) { l.tree.PageSize = 20 }},
		"pages, newest first":    {vary: func(l *log) { l.tree.PageSize, l.reverse = 20, true }},
		"links, not expanded":    {vary: func(l *log) { l.links(); l.tree.Ignores = []string{"$expand", "$filter"} }},
		"links, newest first":    {vary: func(l *log) { l.links(); l.reverse, l.tree.Ignores = true, []string{"$expand", "$filter"} }},
		"links, queries ignored": {vary: func(l *log) { l.links(); l.tree.Ignores = []string{"$skip", "$top", "$filter", "$expand"} }},
		"links that expand":      {vary: func(l *log) { l.links() }},
		"in no order":            {vary: func(l *log) { l.shuffle = true; l.tree.Ignores = []string{"$skip", "$top", "$filter"} }, dear: true},
		"links and no order, paged": {vary: func(l *log) {
			l.links()
			l.shuffle = true
			l.tree.Ignores = []string{
				"$skip", "$top",
				"$filter",
			}
		}, dear: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, false)
			c.vary(l)
			l.publish()
			now := collectortest.Now
			l.s.Now = func() time.Time { return now }
			l.restart()
			var want []string
			for id := range 200 {
				l.add(id + 1)
				want = append(want, strconv.Itoa(id+1))
			}
			if d := cmp.Diff(want, l.poll()); d != "" {
				t.Fatalf("first poll (-want +got):\n%s", d)
			}
			for range 8 { // what is tried once is tried
				now = now.Add(15 * time.Minute)
				l.poll()
			}
			for id := 201; id < 210; id += 3 {
				now = now.Add(15 * time.Minute)
				l.add(id, id+1, id+2)
				before := l.tree.Bytes.Load()
				if d := cmp.Diff([]string{strconv.Itoa(id), strconv.Itoa(id + 1), strconv.Itoa(id + 2)}, l.poll()); d != "" {
					t.Errorf("new entries (-want +got):\n%s", d)
				}
				if n := l.tree.Bytes.Load() - before; n > 16<<10 && !c.dear {
					t.Errorf("%d bytes for three new entries of a log of 200", n)
				}
			}
			// A full log drops its oldest entries for new ones.
			for id := 210; id < 216; id += 2 {
				now = now.Add(15 * time.Minute)
				l.members = l.members[2:]
				l.add(id, id+1)
				if d := cmp.Diff([]string{strconv.Itoa(id), strconv.Itoa(id + 1)}, l.poll()); d != "" {
					t.Errorf("new entries of a full log (-want +got):\n%s", d)
				}
			}
		})
	}
}

// links shows the entries as resources of their own.
func (l *log) links() { l.asLinks = true }

func TestALogThatOnlyComesWholeIsReadAtABoundedPace(t *testing.T) {
	l := newLog(t, false)
	l.tree.Ignores = []string{"$skip", "$top", "$filter"}
	now := collectortest.Now
	l.s.Now = func() time.Time { return now }
	l.restart()
	for id := range 2000 {
		l.add(id + 1)
	}
	l.poll()
	size := l.tree.Bytes.Load()
	for id := range 120 { // twenty minutes of a log that changes all the time
		now = now.Add(10 * time.Second)
		l.add(2001 + id)
		l.poll()
	}
	if read := l.tree.Bytes.Load() - size; read > 20*60*pace+4*size {
		t.Errorf("%d bytes in twenty minutes of a log of %d", read, size)
	}
}

func TestALogShownAtSeveralPathsIsReadOnce(t *testing.T) {
	l := newLog(t, true)
	const other = "/redfish/v1/Managers/1/LogServices/SEL"
	l.tree.Set("/redfish/v1", map[string]any{
		"Systems": link("/redfish/v1/Systems"), "Managers": link("/redfish/v1/Managers"),
		"Chassis": link("/redfish/v1/Chassis"),
	})
	l.tree.Set("/redfish/v1/Managers", map[string]any{"Members": []any{link("/redfish/v1/Managers/1")}})
	l.tree.Set("/redfish/v1/Managers/1", map[string]any{
		"@odata.id":   "/redfish/v1/Managers/1",
		"LogServices": link("/redfish/v1/Managers/1/LogServices/"),
	})
	l.tree.Set("/redfish/v1/Managers/1/LogServices", map[string]any{"Members": []any{
		link(other),
		link("/redfish/v1/Systems/1/LogServices/SEL/"),
	}})
	l.tree.Set(other, map[string]any{"@odata.id": other, "Id": "SEL", "Entries": link(other + "/Entries")})
	l.tree.Set("/redfish/v1/Chassis", map[string]any{"Members": []any{link("/redfish/v1/Chassis/1")}})
	l.tree.Set("/redfish/v1/Chassis/1", map[string]any{
		"@odata.id":   "/redfish/v1/Chassis/1",
		"LogServices": link("/redfish/v1/Systems/1/LogServices"),
	})
	now := collectortest.Now
	l.s.Now = func() time.Time { return now }
	l.restart()
	both := func() { // the manager's log says what the system's does, under paths of its own
		var m []any
		for _, e := range l.members {
			o := maps.Clone(e.(map[string]any))
			o["@odata.id"] = other + "/Entries/" + o["Id"].(string)
			m = append(m, o)
		}
		l.tree.Set(other+"/Entries", map[string]any{"Members": m})
	}
	l.add(1, 2, 3, 4, 5, 6)
	both()
	if d := cmp.Diff([]string{"1", "2", "3", "4", "5", "6"}, l.poll()); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
	for id := 7; id < 12; id++ {
		now = now.Add(10 * time.Second)
		l.add(id)
		both()
		before := l.tree.Requests.Load()
		if d := cmp.Diff([]string{strconv.Itoa(id)}, l.poll()); d != "" {
			t.Errorf("entries (-want +got):\n%s", d)
		}
		if n := l.tree.Requests.Load() - before; n > 2 && id > 8 {
			t.Errorf("%d requests in a poll, want one for the log and one for the power state", n)
		}
	}
	// What only the other path shows is not lost.
	l.tree.Set(other+"/Entries", map[string]any{"Members": []any{map[string]any{
		"@odata.id": other + "/Entries/1", "Id": "1",
		"Message": "of its own", "Created": now.Format(time.RFC3339),
	}}})
	now = now.Add(twinEvery)
	if got := l.poll(); len(got) != 1 {
		t.Errorf("entries %v, want the one of the other path", got)
	}
}
