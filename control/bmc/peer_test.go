package bmc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

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
	s := control.Step{ID: "c", Kind: "set_bios", Server: "s1", With: params("NoSuchThing", "x")}
	if err := all["set_bios"].Apply(t.Context(), s); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "NoSuchThing") {
		t.Error(err)
	}
	// Its managers have no reset, and that is said before anything is sent.
	if _, err := all["reset_bmc"].Plan(t.Context(), control.Step{ID: "d", Kind: "reset_bmc", Server: "s1"}); !errors.Is(err, control.ErrCannot) {
		t.Error(err)
	}
}

// nobody has no credentials, for services that ask for none.
type nobody struct{}

func (nobody) Secret(context.Context, string) (user, password string, err error) { return "", "", nil }
