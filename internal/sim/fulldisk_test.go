package sim

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// smallDisk mounts a disk of two megabytes and returns what fills it and what makes room again.
func smallDisk(t *testing.T) (dir string, fill, clear func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small disk cannot be mounted here, which needs the rights of root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if !strings.Contains(err.Error(), "no space") {
			t.Fatal(err)
		}
	}
	return dir, fill, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullDiskLosesNothingThatDevicesSay(t *testing.T) {
	t.Parallel()
	dir, fill, room := smallDisk(t)
	cfg := small(dir)
	var said waittest.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	var mu sync.Mutex
	var told []ledger.Entry
	cfg.OnEntry = func(e ledger.Entry) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e)
	}
	saying := func(device, power string) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range told {
			if e.Device == device && e.Kind == ledger.KindPower && e.Code == power {
				return true
			}
		}
		return false
	}
	_, stop := begin(t, cfg)
	servers := inventory(t, dir)
	fill()

	// Hosts that start again while there is no room make their kernels' logs anew.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust(t, dir), DisableKeepAlives: true}, Timeout: patience}
	restarted := map[string]bool{"gpu-r01-01": true, "gpu-r01-02": true, "gpu-r02-01": true, "gpu-r02-02": true}
	for name := range restarted {
		req, err := http.NewRequest(http.MethodPost, servers[name].Attrs.Get(schemas.AttrRedfishURL)+"/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset",
			strings.NewReader(`{"ResetType": "PowerCycle"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(fleet.User, fleet.Password)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatal(resp.Status)
		}
	}
	full := func(what string, ok func() bool) { // also where a file that was replaced, or a log that is gone, leaves room
		t.Helper()
		waittest.For(t, what, func() bool { fill(); return ok() })
	}
	full("the full disk is told", func() bool { return strings.Contains(said.String(), "the disk is full") })
	for name := range restarted {
		full(name+" is off, and on again", func() bool { return saying(name, "Off") && saying(name, "On") })
	}
	server := servers["gpu-r01-02"].Attrs
	full("the system is up", func() bool {
		resp, err := client.Get(server.Get(schemas.AttrExporterURL))
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	full("entries of the ledger wait", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(entries(t, dir)) < len(told)
	})

	room()
	waittest.For(t, "the room is told", func() bool {
		return strings.Count(said.String(), "the disk is full") == strings.Count(said.String(), `room again: what waited is written" dir=`+dir+" lost_lines=0")
	})
	stop()
	if d := cmp.Diff(told, entries(t, dir)); d != "" {
		t.Errorf("told and written differ: %s", d)
	}
	data, err := os.ReadFile(server.Get(schemas.AttrKmsgPath))
	if err != nil || bytes.Count(data, []byte("Linux version")) != 1 {
		t.Errorf("the log of the boot: %d bytes, %v", len(data), err)
	}
	var seq int
	for line := range bytes.Lines(data) {
		if want := fmt.Sprintf(",%d,", seq); !bytes.Contains(line[:min(len(line), 20)], []byte(want)) || line[len(line)-1] != '\n' {
			t.Fatalf("record %d is %q", seq, line)
		}
		seq++
	}
	if st := saved(t, dir); !st.Clean || st.Fleet.Servers["gpu-r01-02"].BootID != bootIDs(t, dir)["gpu-r01-02"] {
		t.Error("the state of the fleet is not that of the end")
	}
}
