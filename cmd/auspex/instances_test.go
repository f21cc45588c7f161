package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/config"
	"auspex/internal/store/audit"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/sqldb"
	"auspex/internal/waittest"
	"auspex/schemas"
)

const askingFleet = `{"version": 1, "links": [], "resources": [
 {"id": "s1", "kind": "server", "attrs": {"architecture": "x86_64"}},
 {"id": "s1/nic0", "kind": "nic", "parent": "s1", "attrs": {"mac": "02:00:00:00:00:01", "ip": "127.0.0.1, 2001:db8::1"}},
 {"id": "s2", "kind": "server"},
 {"id": "s2/nic0", "kind": "nic", "parent": "s2", "attrs": {"mac": "02:00:00:00:00:02", "ip": "SECOND"}},
 {"id": "s3", "kind": "server"},
 {"id": "s3/nic0", "kind": "nic", "parent": "s3", "attrs": {"mac": "02:00:00:00:00:03", "ip": "127.0.0.3"}},
 {"id": "s4", "kind": "server"},
 {"id": "s4/nic0", "kind": "nic", "parent": "s4", "attrs": {"mac": "02:00:00:00:00:04", "ip": "127.0.0.3"}}
]}`

// A server asks a running Auspex what it is: by its address in the inventory of the moment, or by its
// token; who has read a secret is in the audit, and the secret is not.
func TestServersAskWhatTheyAre(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s := &site{dir: t.TempDir(), hup: make(chan struct{})}
	fleet := func(second string) { s.write(t, "fleet.json", strings.ReplaceAll(askingFleet, "SECOND", second)) }
	fleet("127.0.0.2")
	s.start(t, strings.ReplaceAll(`
data: DIR/data
secrets: DIR/secrets.yaml
inventory: {file: DIR/fleet.json}
store: {clickhouse: "off"}
api: {listen: 127.0.0.1:0}
instance_metadata: {listen: "ADDR", secrets: [bmc]}
`, "ADDR", addr))
	ask := func(from, path string) (int, string) {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}, Timeout: time.Minute}
		res, err := client.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	db, err := sqldb.Open(t.Context(), filepath.Join(s.dir, "data", "auspex.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store := provisioning.New(db)
	_, one := ask("127.0.0.1", "/latest/meta-data/instance-id")
	if _, err := store.Override(t.Context(), "ann", one, 0, schemas.HardwareOverrides{UserData: "password: secret:bmc\n"}); err != nil {
		t.Fatal(err)
	}
	expect := func(from, path string, code int, want string) {
		t.Helper()
		if got, body := ask(from, path); got != code || code == http.StatusOK && body != want {
			t.Errorf("%s from %s: %d %s", path, from, got, body)
		}
	}
	expect("127.0.0.1", "/latest/user-data", http.StatusOK, "password: b\n")
	expect("127.0.0.2", "/2009-04-04/meta-data/hostname", http.StatusOK, "s2")
	expect("127.0.0.2", "/latest/user-data", http.StatusNotFound, "")
	expect("127.0.0.3", "/latest/meta-data/hostname", http.StatusNotFound, "") // two have it
	expect("127.0.0.9", "/latest/meta-data/hostname", http.StatusNotFound, "")

	token, _, err := store.IssueToken(t.Context(), "ann", "s3")
	if err != nil {
		t.Fatal(err)
	}
	expect("127.0.0.9", "/t/"+token+"/latest/meta-data/hostname", http.StatusOK, "s3")
	again, _, err := store.IssueToken(t.Context(), "ann", "s3")
	if err != nil {
		t.Fatal(err)
	}
	expect("127.0.0.9", "/t/"+token+"/latest/meta-data/hostname", http.StatusUnauthorized, "")
	expect("127.0.0.9", "/t/"+again+"/latest/meta-data/hostname", http.StatusOK, "s3")
	if err := store.RevokeToken(t.Context(), "ann", "s3"); err != nil {
		t.Fatal(err)
	}
	expect("127.0.0.9", "/t/"+again+"/latest/meta-data/hostname", http.StatusUnauthorized, "")

	// An address that has moved is answered to nobody else: the record says so at once.
	fleet("127.0.0.4")
	if status, r := s.reload(t); status != http.StatusOK {
		t.Fatalf("%d %+v", status, r)
	}
	expect("127.0.0.2", "/latest/meta-data/hostname", http.StatusNotFound, "")
	waittest.For(t, "the address is not known", func() bool {
		code, _ := ask("127.0.0.4", "/latest/meta-data/hostname")
		return code == http.StatusOK
	})

	rows, _, err := audit.New(db, time.Now).Page(t.Context(), audit.Filter{Verb: "read", Limit: 10})
	if err != nil || len(rows) != 1 || rows[0].Subject != "s1" || rows[0].Kind != provisioning.KindUserData || rows[0].Detail != "from 127.0.0.1" {
		t.Errorf("%+v %v", rows, err)
	}
	rows, _, err = audit.New(db, time.Now).Page(t.Context(), audit.Filter{Limit: 100})
	if text := fmt.Sprint(rows, err); strings.Contains(text, token) || strings.Contains(text, "password: b") || !strings.Contains(text, provisioning.KindMetadataToken) {
		t.Error(text)
	}
	if got := s.metrics(t, `auspex_instance_metadata_requests_total{path="user-data",result="answered"} 1`); len(got) != 1 {
		t.Error(s.metrics(t, "auspex_instance_metadata_requests_total"))
	}
}

func TestConfigCheckReadsWhatInstanceMetadataNeeds(t *testing.T) {
	s := &site{dir: t.TempDir()}
	s.write(t, "secrets.yaml", "join: {user: a, password: b}\n")
	for _, tc := range []struct{ instance, want string }{
		{`{listen: "127.0.0.1:0", secrets: [join]}`, "control observe"},
		{`{listen: "127.0.0.1:0", secrets: [gone]}`, `instance_metadata.secrets: credential "gone"`},
		{`{listen: "127.0.0.1:0", tls: {cert_file: /nowhere, key_file: /nowhere}}`, "instance_metadata.tls.cert_file: open /nowhere"},
		{`{proxies: [everybody]}`, `instance_metadata: proxies: "everybody" is neither an address nor a network`},
	} {
		s.write(t, "auspex.yaml", "data: DIR/data\nsecrets: DIR/secrets.yaml\nstore: {clickhouse: \"off\"}\ninstance_metadata: "+tc.instance+"\n")
		cfg := DefaultConfig()
		err := config.Load(config.Source{Files: []string{filepath.Join(s.dir, "auspex.yaml")}}, &cfg)
		var out bytes.Buffer
		if err == nil {
			err = Check(t.Context(), cfg, false, &out, io.Discard)
		}
		if got := fmt.Sprint(out.String(), err); !strings.Contains(got, tc.want) {
			t.Errorf("%s: it says %s", tc.instance, got)
		}
	}
}
