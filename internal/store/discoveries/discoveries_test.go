package discoveries

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// desk is a store at a time of its own.
type desk struct {
	*Store
	at time.Time
}

func open(t *testing.T) *desk {
	t.Helper()
	d := &desk{Store: New(sqltest.Open(t)), at: time.Unix(1700000000, 0).UTC()}
	d.now = func() time.Time { return d.at }
	return d
}

func (d *desk) start(t *testing.T) schemas.Discovery {
	t.Helper()
	d.at = d.at.Add(time.Millisecond)
	got, err := d.Start(t.Context(), "ana", schemas.Discovery{Ranges: []string{"10.0.0.0/30"}, RedfishPorts: []int{443}, IPMIPorts: []int{623}, Credential: "bmc", Addresses: 4})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (d *desk) take(t *testing.T, holder string) (string, bool) {
	t.Helper()
	got, ok, err := d.Take(t.Context(), holder, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID, ok
}

func find(number int, result string) schemas.Find {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(number)}), 443)
	return schemas.Find{
		ID: fmt.Sprintf("f-%d-%s", number, result), Number: number, Address: at.String(), Protocol: "redfish", Result: result, SeenAt: time.Unix(1700000001, 0).UTC(),
		Hardware: schemas.Hardware{SerialNumber: "S", GPUs: []schemas.FoundPart{{Name: "GPU_0"}}},
	}
}

func TestASweepFromItsStartToItsEnd(t *testing.T) {
	d := open(t)
	s := d.start(t)
	if s.Status != schemas.DiscoveryWaiting || s.CreatedBy != "ana" || !s.CreatedAt.Equal(d.at) || s.ID == "" {
		t.Fatalf("%+v", s)
	}
	if id, ok := d.take(t, "one"); !ok || id != s.ID {
		t.Fatal(id, ok)
	}
	if _, ok := d.take(t, "two"); ok {
		t.Error("two have it")
	}
	told := 0
	with := func(context.Context, *sql.Tx) error { told++; return nil }
	if err := d.Note(t.Context(), s.ID, "one", time.Minute, 2, []schemas.Find{find(0, schemas.FindFound), find(1, schemas.FindRefused)}, with); err != nil {
		t.Fatal(err)
	}
	// What is noted twice, after a kill, is there once.
	if err := d.Note(t.Context(), s.ID, "one", time.Minute, 3, []schemas.Find{find(1, schemas.FindFound), find(3, schemas.FindUnreadable)}, nil); err != nil {
		t.Fatal(err)
	}
	got, err := d.Get(t.Context(), s.ID)
	if err != nil || got.Status != schemas.DiscoveryRunning || got.Asked != 3 || got.Found != 1 || got.Refused != 1 || got.Unreadable != 1 || got.Silent != 1 || told != 1 ||
		!slices.Equal(got.Ranges, s.Ranges) || !slices.Equal(got.RedfishPorts, s.RedfishPorts) || got.StartedAt.IsZero() || !got.CompletedAt.IsZero() {
		t.Errorf("%+v: %v", got, err)
	}
	if answered, err := d.Answered(t.Context(), s.ID); err != nil || len(answered) != 3 || !answered[3] {
		t.Errorf("%v: %v", answered, err)
	}
	moved, err := Moved(t.Context(), d.db)
	if err != nil || len(moved) != 1 || moved[0] != s.ID+" 3 3" {
		t.Errorf("%q: %v", moved, err)
	}
	// A failure beside it leaves nothing.
	if err := d.Note(t.Context(), s.ID, "one", time.Minute, 4, []schemas.Find{find(2, schemas.FindFound)}, func(context.Context, *sql.Tx) error { return errors.New("locked") }); err == nil {
		t.Error("no error")
	}
	if got, err = d.Get(t.Context(), s.ID); err != nil || got.Asked != 3 || got.Found != 1 {
		t.Errorf("%+v: %v", got, err)
	}
	if got, err = d.End(t.Context(), s.ID, "one", schemas.DiscoveryCompleted, ""); err != nil || got.Status != schemas.DiscoveryCompleted || got.CompletedAt.IsZero() {
		t.Errorf("%+v: %v", got, err)
	}
	if _, err := d.Cancel(t.Context(), "ana", s.ID); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	rows, err := audit.New(d.db, d.now).List(t.Context(), 0, 10)
	if err != nil || len(rows) != 2 || rows[0].Actor != "auspex" || rows[1].Actor != "ana" || rows[0].Subject != s.ID || rows[0].Kind != Kind {
		t.Errorf("the audit has %+v: %v", rows, err)
	}
}

func TestALeaseThatEndsGivesASweepToAnother(t *testing.T) {
	d := open(t)
	first, second := d.start(t), d.start(t)
	if id, _ := d.take(t, "one"); id != first.ID {
		t.Error("the oldest is not the first")
	}
	d.at = d.at.Add(50 * time.Second)
	if err := d.Note(t.Context(), first.ID, "one", time.Minute, 1, nil, nil); err != nil { // begins the lease anew
		t.Fatal(err)
	}
	d.at = d.at.Add(50 * time.Second)
	if id, _ := d.take(t, "two"); id != second.ID {
		t.Errorf("%s is taken", id)
	}
	d.at = d.at.Add(11 * time.Second)
	if id, ok := d.take(t, "three"); !ok || id != first.ID {
		t.Errorf("%s is taken", id)
	}
	if err := d.Note(t.Context(), first.ID, "one", time.Minute, 2, []schemas.Find{find(1, schemas.FindFound)}, nil); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if _, err := d.End(t.Context(), first.ID, "one", schemas.DiscoveryCompleted, ""); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if _, err := d.Cancel(t.Context(), "ben", first.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Note(t.Context(), first.ID, "three", time.Minute, 2, nil, nil); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	got, err := d.Get(t.Context(), first.ID)
	if err != nil || got.Status != schemas.DiscoveryCancelled || got.Reason != "cancelled by ben" || got.Asked != 1 || got.Found != 0 {
		t.Errorf("%+v: %v", got, err)
	}
}

func TestASweepIsTakenByOne(t *testing.T) {
	d := open(t)
	d.start(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for i := range 8 {
		all.Go(func() {
			_, ok, err := d.Take(t.Context(), strconv.Itoa(i), time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if ok {
				taken++
			}
		})
	}
	if all.Wait(); taken != 1 {
		t.Errorf("%d have it", taken)
	}
}

func TestSweepsAreBoundedAndForgotten(t *testing.T) {
	d := open(t)
	var last schemas.Discovery
	for range maxLive {
		last = d.start(t)
	}
	want := schemas.Discovery{Ranges: []string{"10.0.0.1"}, Addresses: 1}
	if _, err := d.Start(t.Context(), "ana", want); !errors.Is(err, ErrMany) {
		t.Error(err)
	}
	if _, err := d.Cancel(t.Context(), "ana", last.ID); err != nil {
		t.Fatal(err)
	}
	d.at = d.at.Add(keep + time.Hour)
	if _, err := d.Start(t.Context(), "ana", want); err != nil {
		t.Error(err)
	}
	if _, err := d.Get(t.Context(), last.ID); !errors.Is(err, entity.ErrNone) {
		t.Errorf("one that ended long ago: %v", err)
	}
	var all []string
	for after, pages := "", 0; pages < 10; pages++ {
		page, next, err := d.List(t.Context(), schemas.DiscoveryWaiting, "", after, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			if slices.Contains(all, s.ID) {
				t.Errorf("%s comes twice", s.ID)
			}
			all = append(all, s.ID)
		}
		if after = next; next == "" {
			break
		}
	}
	if len(all) != maxLive {
		t.Errorf("%d are listed", len(all))
	}
	if _, _, err := d.List(t.Context(), "", "", "no cursor", 5); err == nil {
		t.Error("a cursor that is none was taken")
	}
	if _, err := d.Start(t.Context(), "ana", schemas.Discovery{}); err == nil {
		t.Error("a sweep of nothing was taken")
	}
}

func TestFindsAreListedByAddress(t *testing.T) {
	d := open(t)
	s := d.start(t)
	d.take(t, "one")
	for _, n := range []int{3, 0, 2, 1} {
		result := schemas.FindFound
		if n == 2 {
			result = schemas.FindRefused
		}
		if err := d.Note(t.Context(), s.ID, "one", time.Minute, 0, []schemas.Find{find(n, result)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	for after, pages := "", 0; pages < 5; pages++ {
		page, next, err := d.Finds(t.Context(), s.ID, "", after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page {
			got = append(got, f.Number)
		}
		if after = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("%v", got)
	}
	refused, _, err := d.Finds(t.Context(), s.ID, schemas.FindRefused, "", 10)
	if err != nil || len(refused) != 1 || refused[0].Number != 2 || len(refused[0].GPUs) != 1 || refused[0].DiscoveryID != s.ID {
		t.Errorf("%+v: %v", refused, err)
	}
	if f, err := d.Find(t.Context(), refused[0].ID); err != nil || f.SerialNumber != "S" || f.SeenAt.IsZero() {
		t.Errorf("%+v: %v", f, err)
	}
	if _, err := d.Find(t.Context(), "none"); !errors.Is(err, entity.ErrNone) {
		t.Error(err)
	}
}
