package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/schemas"
)

func (m *measured) console(server, kind, protocol, port string, sessions float64) {
	m.t.Helper()
	m.add(time.Now().Add(-time.Second), schemas.MetricConsoles, sessions,
		"resource", server, "server", server, "collector", "redfish", "console", kind, "protocol", protocol, "port", port)
}

func TestConsolesAreLinksForWhoMayOperateTheServer(t *testing.T) {
	m, with := measures(t)
	w, _, _ := tenants(t, with)
	const server = "gpu-r01-01" // li of a team has it
	get := func(role string) []apigen.Console {
		t.Helper()
		return answered[apigen.Server](t, w.send(t, http.MethodGet, "api/v1/servers/"+server, role, nil), http.StatusOK).Consoles
	}
	if got := get(access.RoleAdmin); len(got) != 0 {
		t.Errorf("of what nobody has read: %+v", got)
	}
	m.console(server, schemas.ConsoleGraphical, "KVMIP", "", 4)
	m.console(server, schemas.ConsoleSerial, "SSH", "2200", 15)
	m.console(server, schemas.ConsoleSerial, "IPMI", "", 15)
	m.console(server, schemas.ConsoleSerial, "Telnet", "", 0)
	if a := w.do(t, access.RoleEngineer, http.MethodPut, "servers/"+server, "", `{"redfish_url":"https://[2001:db8::7]:8443/redfish","ipmi_ip":"192.0.2.7:6230","credential":"bmc"}`); a.status != http.StatusOK {
		t.Fatal(a.status, a.body)
	}
	want := []apigen.Console{
		{Kind: "graphical", Protocol: "KVMIP", Enabled: true, Sessions: 4, URL: "https://[2001:db8::7]:8443/"},
		{Kind: "serial", Protocol: "IPMI", Enabled: true, Sessions: 15, Command: "ipmitool -I lanplus -H 192.0.2.7 -p 6230 -U USER -a sol activate"},
		{Kind: "serial", Protocol: "SSH", Enabled: true, Sessions: 15, URL: "ssh://[2001:db8::7]:2200"},
		{Kind: "serial", Protocol: "Telnet"},
	}
	for role, sees := range map[string]bool{access.RoleViewer: false, access.RoleOperator: false, access.RoleEngineer: true, access.RoleAdmin: true, "li": false} {
		got := get(role)
		if !sees && len(got) != 0 {
			t.Errorf("%s sees %+v", role, got)
		}
		if d := cmp.Diff(want, got); sees && d != "" {
			t.Errorf("%s: %s", role, d)
		}
	}
}

func TestAnAddressGivesNoCommandToRun(t *testing.T) {
	for _, bad := range []string{"$(reboot)", "10.0.0.1; reboot", "-oProxyCommand=x", "https://user:secret@10.0.0.1/x y"} {
		attrs := schemas.AttrsOf(map[string]string{schemas.AttrIPMIIP: bad, schemas.AttrRedfishURL: bad})
		for _, protocol := range []string{"IPMI", "SSH", "KVMIP"} {
			link, command := api.WayTo(protocol, "22", attrs)
			if bad[0] != 'h' && link+command != "" {
				t.Errorf("%s at %q: %q %q", protocol, bad, link, command)
			}
			if d := link + command; d != "" && (cmp.Equal(d, bad) || len(d) > 60) {
				t.Errorf("%s at %q: %q", protocol, bad, d)
			}
		}
	}
	attrs := schemas.AttrsOf(map[string]string{schemas.AttrRedfishURL: "https://user:secret@bmc-7.example:8443/redfish/v1"})
	for protocol, want := range map[string]string{
		"KVMIP": "https://bmc-7.example:8443/", "SSH": "ssh://bmc-7.example", "Telnet": "telnet://bmc-7.example",
		"IPMI": "ipmitool -I lanplus -H bmc-7.example -U USER -a sol activate", "Oem": "",
	} {
		if link, command := api.WayTo(protocol, "", attrs); link+command != want {
			t.Errorf("%s: %q %q, want %q", protocol, link, command, want)
		}
	}
}
