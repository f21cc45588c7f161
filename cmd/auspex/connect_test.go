package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/internal/certtest"
	"auspex/internal/config"
)

// rack is a folder with an inventory of two servers: one whose exporter and board
// controller answer, the latter with a certificate of an authority of its own, and
// one that is not there.
func rack(t *testing.T) (dir string, ca *certtest.Authority) {
	t.Helper()
	dir = t.TempDir()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 40`)
	}))
	t.Cleanup(exporter.Close)
	link := func(p string) map[string]any { return map[string]any{"@odata.id": p} }
	tree := redfishtest.New(map[string]map[string]any{
		"/redfish/v1":         {"@odata.id": "/redfish/v1", "Systems": link("/redfish/v1/Systems"), "Links": map[string]any{"Sessions": link("/redfish/v1/SessionService/Sessions")}},
		"/redfish/v1/Systems": {"@odata.id": "/redfish/v1/Systems", "Members": []any{link("/redfish/v1/Systems/1")}},
		"/redfish/v1/Systems/1": {
			"@odata.id": "/redfish/v1/Systems/1", "Id": "1", "PowerState": "On",
			"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}},
		},
	})
	ca = certtest.New(t)
	pair := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	bmc := httptest.NewUnstartedServer(tree)
	bmc.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	bmc.StartTLS()
	t.Cleanup(bmc.Close)
	for name, text := range map[string]string{
		"secrets.yaml": "bmc: {user: admin, password: secret}\n",
		"topology.json": fmt.Sprintf(`{"version": 1, "resources": [{"id": "dc1", "kind": "site"},
			{"id": "s1", "kind": "server", "parent": "dc1", "attrs": {"exporter_url": %q, "redfish_url": %q, "credential": "bmc"}},
			{"id": "s2", "kind": "server", "parent": "dc1", "attrs": {"exporter_url": "http://127.0.0.1:1", "agent_address": "127.0.0.1:1"}}]}`, exporter.URL, bmc.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, ca
}

func TestCheckTriesEveryPeerAndDeviceOnce(t *testing.T) {
	dir, ca := rack(t)
	check := func(set ...string) (string, error) {
		t.Helper()
		cfg := DefaultConfig()
		err := config.Load(config.Source{Set: append([]string{
			"data=" + filepath.Join(dir, "data"), "secrets=" + filepath.Join(dir, "secrets.yaml"),
			"inventory.file=" + filepath.Join(dir, "topology.json"),
			"store.clickhouse=off", "collectors={redfish: {}, dcgmexporter: {}}",
		}, set...)}, &cfg)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = Check(t.Context(), cfg, true, &out, &out)
		return out.String(), err
	}
	refused := "collector dcgmexporter: 1 of 2 (s2): scrape …: dial tcp …: connect: connection refused"
	for _, tc := range []struct {
		name          string
		set           []string
		reports, errs []string
		silent        []string
	}{
		{
			name:    "nobody trusts the controller",
			reports: []string{"collector dcgmexporter: 1 of 2 answer", "collector redfish: 0 of 1 answer", "control power_cycle: 0 of 1 answer"},
			errs:    []string{refused, "collector redfish: s1: ", "control power_cycle: s1: ", "certificate signed by unknown authority"},
		},
		{
			name: "one trust for a device", set: []string{"trust.bmc.ca_file=" + ca.File},
			reports: []string{"collector redfish: 1 of 1 answer", "control power_cycle: 1 of 1 answer"}, errs: []string{refused},
			silent: []string{"warning"},
		},
		{
			name: "what the collector trusts control trusts", set: []string{"collectors.redfish.tls.ca_file=" + ca.File},
			reports: []string{"collector redfish: 1 of 1 answer", "control power_cycle: 1 of 1 answer"}, silent: []string{"warning"},
		},
		{
			name: "a difference is told", set: []string{"collectors.redfish.tls.insecure_skip_verify=true"},
			reports: []string{
				"collector redfish: 1 of 1 answer", "control power_cycle: 0 of 1 answer",
				"warning: collectors.redfish.tls and control.bmc differ (insecure_skip_verify)",
			},
		},
		{
			name: "an agent is asked where control is to act", set: []string{"trust.bmc.ca_file=" + ca.File, "control.mode=dry-run"},
			reports: []string{"control power_cycle: 1 of 1 answer", "control reset_gpu: 0 of 1 answer"}, errs: []string{"control reset_gpu: s2: "},
		},
		{
			name: "control alone", set: []string{"roles=[control]", "trust.bmc.ca_file=" + ca.File},
			reports: []string{"control power_cycle: 1 of 1 answer"}, silent: []string{"collector redfish: 1 of 1", "blind", "reset_gpu"},
		},
		{
			name: "peers", set: []string{
				"roles=[process,correlate]", "bus={type: kafka, kafka: {brokers: [\"127.0.0.1:1\"], request_timeout: 1s}}",
				"store.sql=host=127.0.0.1 port=1 user=x", "store.clickhouse=clickhouse://127.0.0.1:1/x",
				"notify.alertmanagers=[{url: \"http://127.0.0.1:1\"}]",
			},
			reports: []string{"bus: 0 of 1 answer", "relational store: 0 of 1 answer", "history: 0 of 1 answer", "notifications: 0 of 1 answer"},
			errs:    []string{"bus: 127.0.0.1:1: ", "relational store: PostgreSQL: ", "history: ClickHouse: ", "notifications: http://127.0.0.1:1: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := check(tc.set...)
			for _, s := range tc.reports {
				if !strings.Contains(out, s) {
					t.Errorf("%q is not said in\n%s", s, out)
				}
			}
			for _, s := range tc.silent {
				if strings.Contains(out, s) {
					t.Errorf("%q is said in\n%s", s, out)
				}
			}
			for _, s := range tc.errs {
				if err == nil || !strings.Contains(err.Error(), s) {
					t.Errorf("%q is no failure of\n%v", s, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
				t.Error("a check has made the data folder")
			}
		})
	}
}

func TestCheckNamesTheBlindSpotsOfEachServer(t *testing.T) {
	dir, _ := rack(t)
	cfg := DefaultConfig()
	if err := config.Load(config.Source{Set: []string{
		"secrets=" + filepath.Join(dir, "secrets.yaml"), "inventory.file=" + filepath.Join(dir, "topology.json"), "store.clickhouse=off",
		"collectors={redfish: {}, dcgmexporter: {}}",
	}}, &cfg); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Check(t.Context(), cfg, false, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 servers (s1, s2): half blind to XID: only the exporter's gauge of the last XID is read",
		"2 servers (s1, s2): blind to kernel log: collectors.agent is not configured; collectors.kmsg is not configured",
		"1 server (s2): blind to SEL: collectors.ipmi is not configured; no attribute redfish_url for collectors.redfish",
		"1 server (s2): blind to sensors: ",
		"2 servers (s1, s2): blind to jobs: collectors.kubernetes is not configured; collectors.slurm is not configured",
		"2 servers (s1, s2): blind to network: no network link of the inventory joins it to a switch",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said in\n%s", want, out.String())
		}
	}
}
