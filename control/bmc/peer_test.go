package bmc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
)

// TestAgainstSushyTools drives OpenStack's emulator, which test/peers/sushytools.sh starts.
func TestAgainstSushyTools(t *testing.T) {
	t.Parallel()
	url := os.Getenv("SUSHY_LIBVIRT_URL")
	if url == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("SUSHY_LIBVIRT_URL is not set: test/e2e.sh starts the peer and sets it")
		}
		t.Skip("SUSHY_LIBVIRT_URL is not set: start the peer with test/peers/sushytools.sh to run this test")
	}
	image := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("image")) }))
	t.Cleanup(image.Close)
	d := Default()
	d.Images = []string{image.URL}
	with := at(url)
	with.Secrets = nobody{}
	all, err := d.Remediators(with)
	if err != nil {
		t.Fatal(err)
	}
	client, err := bmc.Open(t.Context(), bmc.Target{Server: "s1", RedfishURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(t.Context()) }()
	api, _ := bmc.Redfish(client)
	component := func() redfish.Component {
		c, err := api.Component(t.Context(), "bios")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bios, err := api.Bios(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mode := map[string]string{"Uefi": "LegacyBios"}[bios.Attributes.String("BootMode")]
	if mode == "" {
		mode = "Uefi"
	}
	version := component().Version
	number := strings.Split(version, ".")
	if n, err := strconv.Atoi(number[1]); err == nil {
		number[1] = strconv.Itoa(n + 1)
	}
	sum := sha256.Sum256([]byte("image"))
	for _, s := range []control.Step{
		{ID: "a", Kind: "set_bios", With: params("BootMode", mode, "reset", "true")},
		{ID: "b", Kind: "update_firmware", With: params("component", "bios", "version", strings.Join(number, "."), "image", image.URL+"/i", "sha256", hex.EncodeToString(sum[:]))},
	} {
		s.Server, s.Since = "s1", time.Now()
		if sentence, err := all[s.Kind].Plan(t.Context(), s); err != nil {
			t.Fatal(messages.Text(sentence), err)
		}
		if err := all[s.Kind].Apply(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s.Kind, err)
		}
		v, how := ends(t, all[s.Kind], s, 20*time.Second)
		if v != control.Verified {
			t.Errorf("%s: %d, %s", s.Kind, v, how)
		}
		t.Log(how)
	}
	resetsTo(t, url, all["set_bios"])
	s := control.Step{ID: "c", Kind: "set_bios", Server: "s1", With: params("NoSuchThing", "x")}
	if err := all["set_bios"].Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "NoSuchThing") {
		t.Error(err)
	}
	// Its managers have no reset, and that is said before anything is sent.
	if _, err := all["reset_bmc"].Plan(t.Context(), control.Step{ID: "d", Kind: "reset_bmc", Server: "s1"}); !errors.Is(err, control.ErrCannot) {
		t.Error(err)
	}
}

// resetsTo sets the BIOS back to its defaults, but for one attribute that is kept. The registry there tells none, which is refused; with
// those that its own Bios.ResetBios sets told beside it, what we set has to be what that does.
func resetsTo(t *testing.T, url string, untold control.Remediator) {
	t.Helper()
	client, err := bmc.Open(t.Context(), bmc.Target{Server: "s1", RedfishURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(t.Context()) }()
	api, _ := bmc.Redfish(client)
	read := func() redfish.Object {
		b, err := api.Bios(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b.Attributes
	}
	system, err := api.System(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := api.Get(t.Context(), system.Link("Bios"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+o.Object("Actions").Object("#Bios.ResetBios").String("target"), "application/json", strings.NewReader("{}")) //nolint:noctx // a peer on loopback
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	defaults := read()
	step := func(id string, with map[string]string) control.Step {
		return control.Step{ID: id, Kind: "set_bios", Server: "s1", Since: time.Now(), With: with}
	}
	if err := api.SetBios(t.Context(), map[string]string{"ProcTurboMode": "Disabled", "QuietBoot": "false", "NicBoot1": "NetworkBoot"}, "e"); err != nil {
		t.Fatal(err)
	}
	changed := read()
	if len(redfish.Differing(changed, map[string]string{"ProcTurboMode": "Disabled", "QuietBoot": "false"})) > 0 {
		t.Fatalf("it is not as a user left it: %v", changed)
	}
	s := step("f", params("defaults", "true", "reset", "true"))
	if _, err := untold.Plan(t.Context(), s); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "tells none") {
		t.Errorf("plan without defaults: %v", err)
	}
	if err := untold.Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) || !cmp.Equal(read(), changed) {
		t.Errorf("apply without defaults: %v, and it is %v", err, read())
	}

	peer, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(peer)
	proxy.ModifyResponse = func(r *http.Response) error {
		var doc map[string]any
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if json.Unmarshal(b, &doc) == nil {
			if doc["Registry"] == "BiosAttributeRegistry1.0" { // its BIOS calls it otherwise
				doc["Id"] = o.String("AttributeRegistry")
			}
			entries, _ := doc["RegistryEntries"].(map[string]any)
			of, _ := entries["Attributes"].([]any)
			for _, v := range of {
				a := v.(map[string]any)
				if is, ok := defaults[a["AttributeName"].(string)]; ok {
					a["DefaultValue"] = is
				}
			}
			if b, err = json.Marshal(doc); err != nil {
				return err
			}
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		r.Header.Set("Content-Length", strconv.Itoa(len(b)))
		return nil
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	with := at(srv.URL)
	with.Secrets = nobody{}
	all, err := Default().Remediators(with)
	if err != nil {
		t.Fatal(err)
	}
	s = step("g", params("defaults", "true", "reset", "true", "ProcTurboMode", "Disabled"))
	sentence, err := all[s.Kind].Plan(t.Context(), s)
	if said := messages.Text(sentence); err != nil || !strings.Contains(said, "QuietBoot") || strings.Contains(said, "ProcTurboMode") {
		t.Fatal(said, err)
	}
	if err := all[s.Kind].Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	v, how := ends(t, all[s.Kind], s, 20*time.Second)
	want := map[string]string{}
	for name := range defaults {
		want[name] = defaults.String(name)
	}
	want["ProcTurboMode"] = "Disabled"
	is := read()
	if off := redfish.Differing(is, want); v != control.Verified || len(off) > 0 || len(is) != len(want) {
		t.Errorf("%d, %s: %v of %v", v, how, off, is)
	}
	t.Log(how)
}

// nobody has no credentials, for services that ask for none.
type nobody struct{}

func (nobody) Secret(context.Context, string) (user, password string, err error) { return "", "", nil }
