package tinkerbell

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"auspex/internal/sim/fleet"
	"auspex/internal/waittest"
	"auspex/internal/wipe"
	"auspex/schemas"
)

const wiping = `version: "0.1"
name: wipe
global_timeout: 6000
tasks:
  - name: wipe
    worker: "{{ .device_1 }}"
    actions:
      - name: erase
        image: images.example/erase:1.0
        timeout: 3000
        environment:
          DISKS: /dev/nvme0n1 /dev/sda
      - name: prove
        image: images.example/auspex-agent:1.0
        timeout: 3000
        command: [wipe-proof]
        environment:
          METADATA_URL: HERE
          WIPE_TOKEN: t0k3n
`

// Disks that erase themselves are found blank, one that fails says so, and one that lies is found out, though the action that
// erased it succeeded.
func TestWhatIsFoundOfErasedDisks(t *testing.T) {
	for name, tc := range map[string]struct {
		fault   map[string]fleet.WipeFault
		actions []string
		found   map[string]string // by device
	}{
		"well": {nil, []string{"SUCCESS", "SUCCESS"}, map[string]string{"/dev/nvme0n1": "its sanitize operation is done, and nothing was written since", "/dev/sda": "its sanitize operation is done, and 1026 blocks that were read are blank"}},
		"one fails": {
			map[string]fleet.WipeFault{"disk0": fleet.WipeFails},
			[]string{"SUCCESS", "FAILED"},
			map[string]string{"/dev/nvme0n1": "its sanitize operation failed", "/dev/sda": "its sanitize operation is done"},
		},
		"one lies": {
			map[string]fleet.WipeFault{"disk0": fleet.WipeLies, "disk1": fleet.WipeFails},
			[]string{"SUCCESS", "FAILED"},
			map[string]string{"/dev/nvme0n1": "hold data, one of them at 0, though it says that its sanitize operation is done", "/dev/sda": "its sanitize operation failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t)
			var mu sync.Mutex
			var found []schemas.WipeDrive
			srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				var report wipe.Report
				err := json.NewDecoder(r.Body).Decode(&report)
				drives, proven, bad := wipe.Judge(&report, nil)
				if err = errors.Join(err, bad); err != nil || r.Header.Get("Authorization") != "Bearer t0k3n" || r.URL.Path != wipe.Path {
					t.Errorf("%v %s", err, r.URL)
				}
				mu.Lock()
				found = drives
				mu.Unlock()
				_ = json.NewEncoder(rw).Encode(wipe.Answer{Proven: proven, Drives: drives})
			}))
			defer srv.Close()
			for disk, fault := range tc.fault {
				if err := w.fleet.SetWipeFault(server+"/"+disk, fault); err != nil {
					t.Fatal(err)
				}
			}
			mac := w.know(server, true)
			w.create("templates", "Template", "wipe", map[string]any{"data": strings.ReplaceAll(wiping, "HERE", srv.URL)})
			w.order("wipe", "wipe", server, mac, false)
			w.boot(server, "Pxe")
			waittest.Until(t, func() error {
				w.pass(time.Second)
				o, err := w.api("workflows").Get(t.Context(), "wipe", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if state, _, _ := unstructured.NestedString(o.Object, "status", "state"); state != "STATE_SUCCESS" && state != "STATE_FAILED" {
					return fmt.Errorf("it is %s", state)
				}
				return nil
			})
			w.is("wipe", tc.actions[1], tc.actions...)
			mu.Lock()
			defer mu.Unlock()
			if len(found) != len(tc.found) {
				t.Fatalf("%+v", found)
			}
			for _, d := range found {
				if !strings.Contains(d.Detail, tc.found[d.Device]) {
					t.Errorf("%s: %s", d.Device, d.Detail)
				}
			}
		})
	}
}
