package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"

	"auspex/internal/waittest"
)

// listed is a unit as systemd's manager lists it.
type listed struct {
	Name, Description, Load, Active, Sub, Following string
	Path                                            dbus.ObjectPath
	Job                                             uint32
	JobType                                         string
	JobPath                                         dbus.ObjectPath
}

// recorded is what systemd 249 told of a GPU server.
var recorded = map[string]listed{
	"nvidia-fabricmanager.service": {Load: "loaded", Active: "failed", Sub: "failed", Path: "/org/freedesktop/systemd1/unit/nvidia_2dfabricmanager_2eservice"},
	"slurmd.service":               {Load: "loaded", Active: "active", Sub: "running", Path: "/org/freedesktop/systemd1/unit/slurmd_2eservice"},
	"kubelet.service":              {Load: "not-found", Active: "inactive", Sub: "dead", Path: "/org/freedesktop/systemd1/unit/kubelet_2eservice"},
	"gpu.target":                   {Load: "loaded", Active: "active", Sub: "active", Path: "/org/freedesktop/systemd1/unit/gpu_2etarget"},
}

func states(units []string) (out []listed) {
	for _, name := range units {
		l, ok := recorded[name]
		if !ok {
			l = listed{Load: "not-found", Active: "inactive", Sub: "dead", Path: "/none"}
		}
		l.Name, l.JobPath = name, "/"
		out = append(out, l)
	}
	return out
}

// property is what a service says of its last run.
func property(path dbus.ObjectPath, name string) dbus.Variant {
	failed := strings.Contains(string(path), "fabricmanager")
	switch {
	case name == "NRestarts" && failed:
		return dbus.MakeVariant(uint32(5))
	case name == "NRestarts":
		return dbus.MakeVariant(uint32(0))
	case failed:
		return dbus.MakeVariant("exit-code")
	}
	return dbus.MakeVariant("success")
}

// wantServices is what is told of them.
var wantServices = map[string]string{
	"services/state/failed":                                         "1",
	"service[name=nvidia-fabricmanager.service]/state/name":         "nvidia-fabricmanager.service",
	"service[name=nvidia-fabricmanager.service]/state/result":       "exit-code",
	"service[name=nvidia-fabricmanager.service]/state/restarts":     "5",
	"service[name=nvidia-fabricmanager.service]/state/active-state": "failed",
	"service[name=nvidia-fabricmanager.service]/state/sub-state":    "failed",
	"service[name=slurmd.service]/state/name":                       "slurmd.service",
	"service[name=slurmd.service]/state/result":                     "success",
	"service[name=slurmd.service]/state/restarts":                   "0",
	"service[name=slurmd.service]/state/active-state":               "active",
	"service[name=slurmd.service]/state/sub-state":                  "running",
	"service[name=gpu.target]/state/name":                           "gpu.target",
	"service[name=gpu.target]/state/active-state":                   "active",
	"service[name=gpu.target]/state/sub-state":                      "active",
}

// watched is a server whose services are read over its bus.
func watched(t *testing.T) *server {
	t.Helper()
	s := newServer(t)
	units := s.source("services").(*services)
	units.units = append(units.units, "gpu.target")
	if err := os.MkdirAll(s.path("run/dbus"), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) readServices() {
	for _, r := range s.host.runners {
		if r.name == "services" {
			s.host.reading(r)
		}
	}
}

func (s *server) services() map[string]string {
	out := map[string]string{}
	for name, v := range below(s.told(), "/host/service") {
		out["service"+name] = v
	}
	return out
}

// bus serves connections of the system bus.
func (s *server) bus(serve func(net.Conn)) {
	s.t.Helper()
	l, err := net.Listen("unix", s.path("run/dbus/system_bus_socket"))
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	s.t.Cleanup(func() {
		l.Close()
		<-ended
	})
}

// greet speaks the beginning of a connection (D-Bus Specification, "Authentication
// Protocol").
func greet(in *bufio.Reader, c net.Conn) bool {
	if b, err := in.ReadByte(); err != nil || b != 0 {
		return false
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return false
		}
		answer := map[string]string{
			"AUTH": "REJECTED EXTERNAL", "AUTH EXTERNAL": "DATA", "DATA": "OK 1234deadbeef", "NEGOTIATE_UNIX_FD": "ERROR",
		}[strings.TrimSpace(line)]
		if answer == "" {
			return strings.TrimSpace(line) == "BEGIN"
		}
		if _, err := c.Write([]byte(answer + "\r\n")); err != nil {
			return false
		}
	}
}

// systemd answers on one connection.
func systemd(c net.Conn) {
	in := bufio.NewReader(c)
	if !greet(in, c) {
		return
	}
	for serial := uint32(1); ; serial++ {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		var body any
		switch m.Headers[dbus.FieldMember].Value() {
		case "Hello":
			body = ":1.7"
		case "ListUnitsByNames":
			body = states(m.Body[0].([]string))
		case "Get":
			body = property(path, m.Body[1].(string))
		}
		reply := dbus.Message{
			Type: dbus.TypeMethodReply, Body: []any{body},
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(body)),
			},
		}
		var b bytes.Buffer
		if err := reply.EncodeTo(&b, binary.LittleEndian); err != nil {
			return
		}
		binary.LittleEndian.PutUint32(b.Bytes()[8:], serial)
		if _, err := c.Write(b.Bytes()); err != nil {
			return
		}
	}
}

func TestServicesAreTold(t *testing.T) {
	s := watched(t)
	s.bus(systemd)
	s.readServices()
	s.readServices()
	if diff := cmp.Diff(wantServices, s.services()); diff != "" {
		t.Error(diff)
	}
	if text := s.unreadable(); text != "" {
		t.Error(text)
	}
}

func TestABusThatIsMissingBrokenOrSilentIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"missing":  {nil, "no system bus"},
		"hangs up": {func(net.Conn) {}, "system bus"},
		"garbage":  {func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, "system bus"},
		"refuses":  {func(c net.Conn) { c.Write([]byte("REJECTED KERBEROS\r\n")) }, "system bus"},
	} {
		t.Run(name, func(t *testing.T) {
			s := watched(t)
			if c.serve != nil {
				s.bus(c.serve)
			}
			s.readServices()
			if text := s.unreadable(); !strings.Contains(text, "services: ") || !strings.Contains(text, c.want) {
				t.Errorf("told %q", text)
			}
			if got := s.services(); len(got) > 0 {
				t.Errorf("told %v", got)
			}
		})
	}
}

// A unit that fails is one event, over restarts of the agent and while it is being started; one that
// runs again, or was stopped, ends it.
func TestAServiceThatFailsIsAnEvent(t *testing.T) {
	s, j := with(t, healthy())
	units := s.source("services").(*services)
	active := "active"
	units.ask = func(context.Context, []string) ([]unit, error) {
		fabric := unit{Name: "nvidia-fabricmanager.service", Active: active, Result: "exit-code", known: true}
		return []unit{fabric, {Name: "gpu.target", Active: "failed"}}, nil
	}
	for _, active = range []string{"active", "failed", "failed", "activating", "failed", "active", "failed", "deactivating", "inactive"} {
		s.read()
	}
	var got []string
	for _, ev := range said(t, j) {
		got = append(got, strings.Join([]string{ev.Type, ev.Code, ev.State, string(ev.Severity), ev.Message}, " "))
	}
	if diff := cmp.Diff([]string{
		"service.failed gpu.target raised error gpu.target has failed",
		"service.failed nvidia-fabricmanager raised error nvidia-fabricmanager has failed: exit-code",
		"service.failed nvidia-fabricmanager cleared info nvidia-fabricmanager is active",
		"service.failed nvidia-fabricmanager raised error nvidia-fabricmanager has failed: exit-code",
		"service.failed nvidia-fabricmanager cleared info nvidia-fabricmanager is inactive",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// A bus that goes takes the states with it: what was is not what is.
func TestServicesThatCannotBeAskedAreDropped(t *testing.T) {
	s := watched(t)
	s.bus(systemd)
	s.readServices()
	s.remove("run/dbus/system_bus_socket")
	s.readServices()
	if got := s.services(); len(got) > 0 {
		t.Errorf("told %v", got)
	}
}

func TestABusThatDoesNotAnswerEndsInTime(t *testing.T) {
	s := watched(t)
	release := make(chan struct{})
	s.bus(func(net.Conn) { <-release })
	defer close(release)
	units := s.source("services").(*services)
	units.answer = 50 * time.Millisecond
	begin := time.Now()
	s.readServices()
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if text := s.unreadable(); !strings.Contains(text, "services: ") {
		t.Errorf("told %q", text)
	}
}

// manager is systemd's part on a real bus.
type manager struct{}

// ListUnitsByNames implements org.freedesktop.systemd1.Manager.
func (manager) ListUnitsByNames(units []string) ([]listed, *dbus.Error) { return states(units), nil }

// properties are those of one service.
type properties dbus.ObjectPath

// Get implements org.freedesktop.DBus.Properties.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	return property(dbus.ObjectPath(p), name), nil
}

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=SOCKET</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`

func TestServicesAreReadOverARealBus(t *testing.T) {
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	s := watched(t)
	socket := s.path("run/dbus/system_bus_socket")
	s.put(map[string]string{"bus.conf": strings.ReplaceAll(busConfig, "SOCKET", socket)})
	cmd := exec.Command(daemon, "--nofork", "--config-file="+s.path("bus.conf"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	waittest.Until(t, func() error { // its file is there before it listens
		c, err := net.Dial("unix", socket)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	conn, err := dbus.Connect("unix:path=" + dbus.EscapeBusAddressValue(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Export(manager{}, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"); err != nil {
		t.Fatal(err)
	}
	for _, l := range recorded {
		if err := conn.Export(properties(l.Path), l.Path, "org.freedesktop.DBus.Properties"); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := conn.RequestName("org.freedesktop.systemd1", 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	s.readServices()
	if diff := cmp.Diff(wantServices, s.services()); diff != "" {
		t.Error(diff)
	}
	if text := s.unreadable(); text != "" {
		t.Error(text)
	}
}
