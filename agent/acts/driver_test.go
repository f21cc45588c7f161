package acts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"auspex/internal/waittest"
)

// machine plays the kernel's modules and systemd's units with files and programs of a folder.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t, t.TempDir()}
	for _, name := range []string{"modules", "units", "broken", "proc/77/fd"} {
		if err := os.MkdirAll(filepath.Join(m.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.has("modules", "nvidia", "nvidia_uvm", "nvidia_modeset", "ext4")
	m.has("units", "nvidia-persistenced", "nvidia-fabricmanager", "sshd")
	// Each program writes down what it does, and fails where a file of broken names that.
	begin := `cd ` + m.dir + `; echo "$(basename $0) $*" >>did; [ -e "broken/$(basename $0)-$(echo $* | tr ' ' -)" ] && { echo it is broken; exit 1; }; list() { ls modules >proc/modules; }; `
	program(t, m.dir, "systemctl", begin+`case $1 in is-active) [ -e units/$3 ];; stop) rm units/$2;; start) touch units/$2;; esac`)
	program(t, m.dir, "rmmod", begin+`rm modules/$1 && list`)
	program(t, m.dir, "modprobe", begin+`touch modules/$1; list`)
	m.list()
	return m
}

func (m *machine) has(what string, names ...string) {
	m.t.Helper()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(m.dir, what, n), nil, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) list() {
	m.t.Helper()
	var text []byte
	for _, n := range m.names("modules") {
		text = append(text, n+" 16384 0 - Live 0x0000000000000000\n"...)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "proc/modules"), text, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) names(what string) (out []string) {
	m.t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.dir, what))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// is says whether all is as it was.
func (m *machine) is() {
	m.t.Helper()
	if got := fmt.Sprint(m.names("modules"), m.names("units")); got != "[ext4 nvidia nvidia_modeset nvidia_uvm] [nvidia-fabricmanager nvidia-persistenced sshd]" {
		m.t.Errorf("there are %s", got)
	}
}

// service has a hand that works on the machine.
func (m *machine) service(b *bay) *Service {
	s := service(m.t, m.dir, "b1", b)
	cfg := Default()
	cfg.Driver.Systemctl, cfg.Driver.Unload, cfg.Driver.Load = filepath.Join(m.dir, "systemctl"), filepath.Join(m.dir, "rmmod"), filepath.Join(m.dir, "modprobe")
	cfg.Driver.Proc = filepath.Join(m.dir, "proc")
	n := s.Hand.Needs
	n.Tools, n.Log = nil, slog.New(slog.DiscardHandler)
	s.Hand = New(cfg, n)
	return s
}

// did returns what was done, without looks.
func (m *machine) did() string {
	return strings.Join(slices.DeleteFunc(did(m.t, m.dir), func(l string) bool { return strings.Contains(l, "is-active") }), "; ")
}

func reload(ctx context.Context, s *Service, id string) error {
	_, err := s.Reboot(ctx, &system.RebootRequest{
		Method: system.RebootMethod_COLD, Message: id, Subcomponents: []*types.Path{{Elem: []*types.PathElem{{Name: "gpus"}}}},
	})
	return err
}

const (
	takenAway = "systemctl stop nvidia-fabricmanager; systemctl stop nvidia-persistenced; rmmod nvidia_modeset; rmmod nvidia_uvm; rmmod nvidia"
	back      = "modprobe nvidia; modprobe nvidia_uvm; modprobe nvidia_modeset; systemctl start nvidia-persistenced; systemctl start nvidia-fabricmanager"
)

func TestADriverIsLoadedAnewOnce(t *testing.T) {
	m, b := newMachine(t), &bay{}
	s := m.service(b)
	for range 2 {
		if err := reload(t.Context(), s, "act-1"); err != nil {
			t.Fatal(err)
		}
		s = m.service(b)
	}
	m.is()
	if got, want := m.did(), takenAway+"; "+back; got != want {
		t.Errorf("done: %s\nwant: %s", got, want)
	}
	if b.released != 0 {
		t.Error("the GPUs were not taken back")
	}
}

// Whatever fails, what was taken away is brought back, and what runs is told.
func TestAReloadThatFailsBringsBackWhatItTookAway(t *testing.T) {
	for _, c := range []struct {
		name, broken, want string
		holder             bool
		done               string
	}{
		{"a unit that does not stop", "systemctl-stop-nvidia-persistenced", "it is broken", false, "systemctl stop nvidia-fabricmanager; systemctl stop nvidia-persistenced; systemctl start nvidia-persistenced; systemctl start nvidia-fabricmanager"},
		{"a module that does not go", "rmmod-nvidia", "it is broken", false, takenAway + "; modprobe nvidia_uvm; modprobe nvidia_modeset; systemctl start nvidia-persistenced; systemctl start nvidia-fabricmanager"},
		{"a process that holds the driver", "", "the driver is in use by exporter (77)", true, "systemctl stop nvidia-fabricmanager; systemctl stop nvidia-persistenced; systemctl start nvidia-persistenced; systemctl start nvidia-fabricmanager"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			if c.broken != "" {
				m.has("broken", c.broken)
			}
			if c.holder {
				if err := os.Symlink("/dev/nvidia0", filepath.Join(m.dir, "proc/77/fd/3")); err != nil {
					t.Fatal(err)
				}
				m.has("proc/77", "comm")
				_ = os.WriteFile(filepath.Join(m.dir, "proc/77/comm"), []byte("exporter\n"), 0o600)
			}
			s := m.service(&bay{})
			if err := reload(t.Context(), s, "act-1"); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
			m.is()
			if got := m.did(); got != c.done {
				t.Errorf("done: %s\nwant: %s", got, c.done)
			}
		})
	}
}

func TestAReloadIsRefusedWhileAProcessHasAGPU(t *testing.T) {
	m := newMachine(t)
	b := &bay{known: []uint32{1, 2}, open: map[uint32][]string{2: {"python (17)"}}}
	if err := reload(t.Context(), m.service(b), "act-1"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "gpu2 is in use by python (17)") {
		t.Error(err)
	}
	if got := m.did(); got != "" {
		t.Errorf("done: %s", got)
	}
}

// What does not come back at once is brought back when it can be; until then nothing else is done to the GPUs.
func TestWhatIsNotBackIsBroughtBackByTheNextAgent(t *testing.T) {
	for name, away := range map[string]func(m *machine, s *Service){
		"it did not load": func(m *machine, s *Service) {
			m.has("broken", "modprobe-nvidia_uvm")
			if err := reload(t.Context(), s, "act-1"); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), ErrAway.Error()) {
				t.Error(err)
			}
			if err := reload(t.Context(), s, "act-2"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is not back") {
				t.Error(err)
			}
			if err := os.Remove(filepath.Join(m.dir, "broken/modprobe-nvidia_uvm")); err != nil {
				t.Error(err)
			}
		},
		"the agent was killed": func(m *machine, s *Service) {
			if _, _, err := s.Hand.Ledger.Begin(Act{ID: "act-1", Kind: KindReload}); err != nil {
				t.Error(err)
			}
			_, err := s.Hand.Tools.Reload(t.Context(), func(what Away) error {
				if err := s.Hand.Ledger.Takes("act-1", what); err != nil {
					return err
				}
				for _, name := range []string{"modules/nvidia", "modules/nvidia_uvm", "units/nvidia-fabricmanager"} {
					if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
						return err
					}
				}
				m.list()
				return context.Canceled // as far as it came
			})
			if err == nil {
				t.Error("it went on")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			away(m, m.service(&bay{}))
			s := m.service(&bay{}) // the agent starts anew
			s.Hand.Run(t.Context())
			m.is()
			a, _ := s.Hand.Ledger.Last(func(a *Act) bool { return a.ID == "act-1" })
			if a.Away != nil || a.Outcome == Done {
				t.Errorf("%+v", a)
			}
			waittest.Until(t, func() error { return reload(t.Context(), s, "act-3") })
			m.is()
		})
	}
}
