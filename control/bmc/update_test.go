package bmc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/internal/bmc/redfish/redfishtest"
)

const (
	updates   = "/redfish/v1/UpdateService"
	inventory = updates + "/FirmwareInventory"
	tasks     = "/redfish/v1/TaskService/Tasks"
)

func firmwareDoc(version string) map[string]any {
	return map[string]any{"@odata.id": inventory + "/BIOS", "Id": "BIOS", "Name": "System BIOS", "Version": version, "Updateable": true}
}

func updateTask(state string) map[string]any {
	return map[string]any{"@odata.id": tasks + "/1", "@odata.type": "#Task.v1_7_0.Task", "Id": "1", "Name": "Firmware update", "TaskState": state, "PercentComplete": 40.0}
}

// updatable is a board with firmware; the service fetches images or has them pushed.
func updatable(push bool) *redfishtest.Tree {
	t := board()
	root := maps.Clone(t.Doc("/redfish/v1"))
	root["UpdateService"], root["TaskService"] = link(updates), link("/redfish/v1/TaskService")
	t.Set("/redfish/v1", root)
	service := map[string]any{"@odata.id": updates, "Id": "UpdateService", "FirmwareInventory": link(inventory), "Actions": map[string]any{}}
	if push {
		service["MultipartHttpPushUri"] = updates + "/push"
	} else {
		service["Actions"] = map[string]any{"#UpdateService.SimpleUpdate": map[string]any{"target": updates + "/Actions/UpdateService.SimpleUpdate"}}
	}
	t.Set(updates, service)
	t.Set(inventory, map[string]any{"Members": []any{link(inventory + "/BIOS")}})
	t.Set(inventory+"/BIOS", firmwareDoc("1.0"))
	t.Set("/redfish/v1/TaskService", map[string]any{"@odata.id": "/redfish/v1/TaskService", "Tasks": link(tasks)})
	t.Set(tasks, map[string]any{"Members": []any{}})
	return t
}

// shelf serves one image, and returns the parameters of an update to version 2.0 with it.
func shelf(t *testing.T) (with map[string]string, d *Config) {
	t.Helper()
	content := strings.Repeat("firmware ", 10000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(content)) }))
	t.Cleanup(srv.Close)
	sum := sha256.Sum256([]byte(content))
	d = Default()
	d.Images = []string{srv.URL}
	return params("component", "bios", "version", "2.0", "image", srv.URL+"/bios.bin", "sha256", hex.EncodeToString(sum[:])), d
}

func TestConformanceOfUpdates(t *testing.T) {
	for name, push := range map[string]bool{"fetched": false, "pushed": true} {
		t.Run(name, func(t *testing.T) {
			controltest.Run(t, controltest.Harness{
				Kinds: []string{"update_firmware"}, Some: true,
				World: func(t *testing.T, m controltest.Manner) controltest.World {
					with, driver := shelf(t)
					peer := updatable(push)
					srv := httptest.NewServer(controltest.Behave(m, peer, changes))
					if m == controltest.Gone {
						srv.Close()
					} else {
						t.Cleanup(srv.Close)
					}
					return controltest.World{
						Driver: driver, Settings: at(srv.URL), Server: "s1", With: map[string]map[string]string{"update_firmware": with},
						Asked: func() int { return len(peer.Posts()) },
						Effects: map[string][]func(){"update_firmware": {
							func() {
								peer.Set(tasks, map[string]any{"Members": []any{link(tasks + "/1")}})
								peer.Set(tasks+"/1", updateTask("Running"))
							},
							func() { peer.Set(inventory+"/BIOS", firmwareDoc("2.0")) }, // it runs still
							func() { peer.Set(tasks+"/1", updateTask("Completed")) },
						}},
					}
				},
			})
		})
	}
}

// What is pushed is the image as it was checked, whole, behind its parameters.
func TestAPushedImageArrivesWhole(t *testing.T) {
	t.Parallel()
	with, driver := shelf(t)
	peer := updatable(true)
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != updates+"/push" {
			peer.ServeHTTP(w, r)
			return
		}
		_, p, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			t.Error(err)
		}
		for form := multipart.NewReader(r.Body, p["boundary"]); ; {
			part, err := form.NextPart()
			if err != nil {
				break
			}
			sum := sha256.New()
			var head strings.Builder
			buf := make([]byte, 512)
			for {
				n, err := part.Read(buf)
				sum.Write(buf[:n])
				if head.Len() < 512 {
					head.Write(buf[:n])
				}
				if err != nil {
					break
				}
			}
			got = append(got, part.FormName()+" "+part.FileName()+" "+part.Header.Get("Content-Type"), head.String(), hex.EncodeToString(sum.Sum(nil)))
		}
		w.Header().Set("Location", tasks+"/1")
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(srv.Close)
	all, err := driver.Remediators(at(srv.URL))
	if err != nil {
		t.Fatal(err)
	}
	s := control.Step{ID: "a", Kind: "update_firmware", Server: "s1", Since: time.Now(), With: with}
	if err := all["update_firmware"].Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(got) != 6 || got[0] != "UpdateParameters  application/json" || !strings.Contains(got[1], inventory+"/BIOS") ||
		!strings.HasPrefix(got[3], "UpdateFile bios.bin") || got[5] != with["sha256"] {
		t.Errorf("%q", got)
	}
	peer.Set(tasks+"/1", updateTask("Running"))
	if v, how, err := all["update_firmware"].Verify(t.Context(), s); v != control.Pending || err != nil || !strings.Contains(messages.Text(how), "is at 40 % (Running)") {
		t.Errorf("%v %v %v", v, how, err)
	}
}

// A controller that says no and installs all the same is followed; one that says no and does not, has refused.
func TestANoToAnImageIsJudgedByTheTasks(t *testing.T) {
	t.Parallel()
	for _, does := range []bool{true, false} {
		with, driver := shelf(t)
		peer := updatable(false)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "SimpleUpdate") {
				if does {
					peer.Set(tasks, map[string]any{"Members": []any{link(tasks + "/1")}})
					peer.Set(tasks+"/1", updateTask("Running"))
				}
				http.Error(w, "{}", http.StatusBadRequest)
				return
			}
			peer.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		all, err := driver.Remediators(at(srv.URL))
		if err != nil {
			t.Fatal(err)
		}
		s := control.Step{ID: "a", Kind: "update_firmware", Server: "s1", Since: time.Now(), With: with}
		if err := all["update_firmware"].Apply(t.Context(), s); errors.Is(err, control.ErrRejected) == does || (err == nil) != does {
			t.Errorf("does it %v: %v", does, err)
		}
	}
}
