package kmsg

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var boot = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRecordsHaveTheFormOfTheDevice(t *testing.T) {
	l := New(filepath.Join(t.TempDir(), "host.kmsg"))
	if err := l.Boot(boot, 41); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, r := range []struct {
		after    time.Duration
		priority int
		text     string
	}{
		{1500 * time.Millisecond, Err, Xid("0000:1b:00.0", 79, Process{}, "GPU has fallen off the bus.")},
		{2 * time.Second, Info, "two\nlines"},
		{-time.Second, Notice, "before the boot"},
	} {
		if _, ok, err := l.Write(boot.Add(r.after), r.priority, r.text); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	data, err := os.ReadFile(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	want := "3,41,1500000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n" +
		`6,42,2000000,-;two\x0alines` + "\n5,43,0,-;before the boot\n"
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
}

func TestABootHasItsOwnIDAndCountsAnew(t *testing.T) {
	l := New(filepath.Join(t.TempDir(), "host.kmsg"))
	if _, ok, err := l.Write(boot, Info, "x"); ok || err != nil {
		t.Errorf("a host that is down wrote: %t, %v", ok, err)
	}
	ids := map[string]bool{}
	for range 3 {
		if err := l.Boot(boot, 0); err != nil {
			t.Fatal(err)
		}
		if seq, ok, err := l.Write(boot, Info, "Linux version"); seq != 0 || !ok || err != nil {
			t.Errorf("first record: %d %t %v", seq, ok, err)
		}
		data, err := os.ReadFile(l.Path() + BootIDSuffix)
		if err != nil {
			t.Fatal(err)
		}
		id := strings.TrimSpace(string(data))
		if id != l.BootID() || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
			t.Errorf("boot id %q, of the log %q", id, l.BootID())
		}
		ids[id] = true
		if err := l.Down(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(l.Path()); err == nil {
			t.Error("the log is there while the host is down")
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d ids of 3 boots", len(ids))
	}
}

func TestLinesOfTheDriver(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{
			"with a process", Xid("0000:df:00.0", 45, Process{4711, "python3"}, "Ch 00000008"),
			"NVRM: Xid (PCI:0000:df:00): 45, pid=4711, name=python3, Ch 00000008",
		},
		{
			"of a switch", SXid(3, "0000:08:00.0", 20034, "Fatal, Link 30 LTSSM Fault Up"),
			"nvidia-nvswitch3: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
		},
		{"of identity", GPUAt("0000:1b:00.0", "GPU-1"), "NVRM: GPU at PCI:0000:1b:00: GPU-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, tc.got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAnotherWriterGoesOnWithABoot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.kmsg")
	l := New(path)
	if ok, err := l.Resume("", boot); ok || err != nil {
		t.Fatalf("a host that is down goes on: %t, %v", ok, err)
	}
	if err := l.Boot(boot, 7); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := l.Write(boot.Add(time.Second), Info, "before"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.file.Write([]byte("6,9,12")); err != nil { // killed while it wrote
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := New(path)
	if ok, err := again.Resume(l.BootID(), boot); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer again.Close()
	if again.BootID() != l.BootID() || !again.Booted().Equal(boot) {
		t.Errorf("boot %s at %s", again.BootID(), again.Booted())
	}
	if seq, ok, err := again.Write(boot.Add(2*time.Second), Info, "after"); seq != 9 || !ok || err != nil {
		t.Errorf("the next record is %d %t %v", seq, ok, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("6,7,1000000,-;before\n6,8,1000000,-;before\n6,9,2000000,-;after\n", string(data)); d != "" {
		t.Error(d)
	}
	other := New(path)
	if ok, err := other.Resume("another id", boot); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer other.Close()
	if other.BootID() != l.BootID() || time.Since(other.Booted()) > time.Minute {
		t.Errorf("of a boot that nobody has noted, the id is %s and the time %s", other.BootID(), other.Booted())
	}
}
