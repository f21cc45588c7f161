package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"auspex/internal/target"
	"auspex/schemas"
)

const maxServices = 256

// services asks systemd how units are, over the system bus
// (org.freedesktop.systemd1(5)).
type services struct {
	m      *machine
	units  []string
	list   map[string]*service
	failed target.Ref
	answer time.Duration // bounds what systemd takes to tell of all
	ask    func(ctx context.Context, units []string) ([]unit, error)
}

// service is one that this machine has.
type service struct {
	path                      string
	name, active, sub, result target.Ref
	restarts                  target.Ref
	seen                      bool
}

// unit is how a service is.
type unit struct {
	Name, Active, Sub string
	Result            string // of its last run: success, exit-code, signal, oom-kill, ...
	Restarts          uint64
	known             bool // whether systemd told the last two
}

func newServices(m *machine) source {
	s := &services{m: m, answer: 5 * time.Second, list: map[string]*service{}, failed: m.tree.Leaf("/host/services/state/failed")}
	for _, name := range m.cfg.Services {
		if !strings.Contains(name, ".") {
			name += ".service"
		}
		if !slices.Contains(s.units, name) {
			s.units = append(s.units, name)
		}
	}
	s.ask = s.bus
	return s
}

func (s *services) read(at time.Time) {
	if len(s.units) == 0 {
		return
	}
	ctx, done := context.WithTimeout(s.m.ctx, s.answer)
	defer done()
	units, err := s.ask(ctx, s.units)
	if err != nil {
		if s.m.ctx.Err() != nil {
			return
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("this machine has no system bus of systemd")
		}
		s.m.fault(err)
	}
	for _, u := range s.list {
		u.seen = false
	}
	for _, u := range units {
		if s.list[u.Name] == nil {
			s.list[u.Name] = s.entry(u.Name)
		}
		s.list[u.Name].seen = true
	}
	for name, u := range s.list {
		if !u.seen {
			s.m.tree.Drop(u.path)
			delete(s.list, name)
		}
	}
	for i := range units {
		s.tell(at, &units[i])
	}
	s.write(at, units, err == nil)
}

// tell tells of a unit that has failed, and of one that has not any more; one that is being
// started is neither.
func (s *services) tell(at time.Time, u *unit) {
	if u.Active != "failed" && u.Active != "active" && u.Active != "inactive" {
		return
	}
	name := strings.TrimSuffix(u.Name, ".service")
	ev := schemas.Event{Type: schemas.EventServiceFailed, Code: name, Severity: schemas.SeverityError}
	if ev.Message = name + " has failed"; u.Result != "" {
		ev.Message += ": " + u.Result
	}
	if u.Active != "failed" {
		ev.Message = name + " is " + u.Active
	}
	s.m.condition(at, name, u.Active == "failed", ev)
}

func (s *services) entry(name string) *service {
	u := &service{path: "/host/service[name=" + target.Key(name) + "]"}
	leaf := func(name string) target.Ref { return s.m.tree.Leaf(u.path + "/state/" + name) }
	u.name, u.active, u.sub, u.result, u.restarts = leaf("name"), leaf("active-state"), leaf("sub-state"), leaf("result"), leaf("restarts")
	return u
}

func (s *services) write(at time.Time, units []unit, known bool) {
	w := s.m.tree.Write(at)
	defer w.Close()
	failed := uint64(0)
	for _, u := range units {
		e := s.list[u.Name]
		if u.Active == "failed" {
			failed++
		}
		w.Text(e.name, u.Name)
		w.Text(e.active, u.Active)
		w.Text(e.sub, u.Sub)
		if !u.known {
			w.None(e.result)
			w.None(e.restarts)
			continue
		}
		w.Text(e.result, u.Result)
		w.Uint(e.restarts, u.Restarts)
	}
	if !known {
		w.None(s.failed)
		return
	}
	w.Uint(s.failed, failed)
}

// bus asks systemd. A connection lasts for one reading, so that no restart of the bus
// matters.
func (s *services) bus(ctx context.Context, units []string) ([]unit, error) {
	socket := filepath.Join(s.m.cfg.Run, "dbus/system_bus_socket")
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(socket), dbus.WithContext(ctx))
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = fs.ErrNotExist // the socket of a bus that is no more
		}
		return nil, fmt.Errorf("system bus %s: %w", socket, err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Auth(nil); err != nil {
		return nil, fmt.Errorf("system bus %s: %w", socket, err)
	}
	if err := conn.Hello(); err != nil {
		return nil, fmt.Errorf("system bus %s: %w", socket, err)
	}
	return ask(ctx, conn, units)
}

// ask lists units with ListUnitsByNames, which knows those too that this machine does
// not have; they are left out.
func ask(ctx context.Context, conn *dbus.Conn, units []string) (out []unit, err error) {
	const peer, manager = "org.freedesktop.systemd1", "org.freedesktop.systemd1.Manager"
	var listed []struct {
		Name, Description, Load, Active, Sub, Following string
		Path                                            dbus.ObjectPath
		Job                                             uint32
		JobType                                         string
		JobPath                                         dbus.ObjectPath
	}
	root := conn.Object(peer, "/org/freedesktop/systemd1")
	if err := root.CallWithContext(ctx, manager+".ListUnitsByNames", 0, units).Store(&listed); err != nil {
		return nil, fmt.Errorf("systemd does not list units: %w", err)
	}
	for _, l := range listed {
		if l.Load == "not-found" || !slices.Contains(units, l.Name) {
			continue
		}
		u := unit{Name: l.Name, Active: l.Active, Sub: l.Sub}
		if strings.HasSuffix(l.Name, ".service") {
			u.runs(ctx, conn.Object(peer, l.Path))
		}
		out = append(out, u)
	}
	return out, nil
}

// runs reads how the last run of a service ended, and how often it was started again;
// systemd before 235 does not tell the latter.
func (u *unit) runs(ctx context.Context, o dbus.BusObject) {
	const get, service = "org.freedesktop.DBus.Properties.Get", "org.freedesktop.systemd1.Service"
	var result, restarts dbus.Variant
	if o.CallWithContext(ctx, get, 0, service, "Result").Store(&result) != nil ||
		o.CallWithContext(ctx, get, 0, service, "NRestarts").Store(&restarts) != nil {
		return
	}
	text, ok := result.Value().(string)
	n, too := restarts.Value().(uint32)
	u.Result, u.Restarts, u.known = text, uint64(n), ok && too
}
