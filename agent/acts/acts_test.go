package acts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/target"
)

// bay is a server's GPUs; each GPU brings along its partner, where it has one.
type bay struct {
	open     map[uint32][]string
	partner  map[uint32]uint32
	stuck    error
	known    []uint32
	values   map[uint32]map[string]float64
	released int
	read     time.Time // when the GPUs were read last before they were released
}

func (b *bay) Group(_ context.Context, numbers []uint32) (out []GPU, err error) {
	if len(numbers) == 0 {
		numbers = b.known
	}
	for _, n := range numbers {
		out = append(out, GPU{Number: n, PCI: fmt.Sprintf("0000:%02x:00.0", n+1), Processes: b.open[n]})
		if p, ok := b.partner[n]; ok {
			out = append(out, GPU{Number: p, PCI: fmt.Sprintf("0000:%02x:00.0", p+1), Processes: b.open[p]})
		}
	}
	return out, nil
}

func (b *bay) Known(context.Context) ([]uint32, error) { return b.known, nil }

func (b *bay) Read(_ context.Context, n uint32, _ bool) (map[string]float64, error) {
	if b.values[n] == nil {
		return nil, errors.New("the GPU has fallen off the bus")
	}
	return b.values[n], nil
}

func (b *bay) Release(context.Context) (func(), error) {
	if b.stuck != nil {
		return nil, b.stuck
	}
	b.released, b.read = b.released+1, time.Now()
	return func() { b.released-- }, nil
}

// program writes a script and returns its path.
func program(t *testing.T, dir, name, script string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	return path
}

func service(t *testing.T, dir, boot string, b GPUs) *Service {
	t.Helper()
	ledger, err := OpenLedger(filepath.Join(dir, "acts.json"), boot)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.NVIDIASMI = program(t, dir, "nvidia-smi", `echo "$@" >>`+dir+`/did; echo reset`)
	cfg.Reboot = []string{program(t, dir, "reboot", `echo reboot >>`+dir+`/did`)}
	reports, err := OpenReports(filepath.Join(dir, "validations.json"), target.NewTree())
	if err != nil {
		t.Fatal(err)
	}
	return &Service{
		Hand:  New(cfg, Needs{Ledger: ledger, GPUs: b, Reports: reports, Boot: boot, Log: slog.New(slog.DiscardHandler)}),
		Admit: func(context.Context) (target.Peer, error) { return target.Peer{Name: "p", Known: true}, nil },
		May:   map[string][]string{KindReset: {"p"}, KindReboot: {"p"}, KindReload: {"p"}, KindValidate: {"p"}},
	}
}

func did(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "did"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func gpu(n int) *types.Path {
	return &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": fmt.Sprintf("gpu%d", n)}}}}
}

func TestWhoMayDoWhat(t *testing.T) {
	dir := t.TempDir()
	b := &bay{open: map[uint32][]string{4: {"python (17)"}}, partner: map[uint32]uint32{3: 4}}
	for _, c := range []struct {
		name string
		peer target.Peer
		req  *system.RebootRequest
		code codes.Code
		want string
	}{
		{"a stranger", target.Peer{Name: "p"}, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "1"}, codes.PermissionDenied, "allow.reboot"},
		{"another", target.Peer{Name: "q", Known: true}, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "1", Subcomponents: []*types.Path{gpu(1)}}, codes.PermissionDenied, "allow.reset"},
		{"no id", target.Peer{Name: "p", Known: true}, &system.RebootRequest{Method: system.RebootMethod_COLD}, codes.InvalidArgument, "auspex-action"},
		{"a delay", target.Peer{Name: "p", Known: true}, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "1", Delay: 1}, codes.Unimplemented, "delay"},
		{"power off", target.Peer{Name: "p", Known: true}, &system.RebootRequest{Method: system.RebootMethod_POWERDOWN, Message: "1"}, codes.Unimplemented, "POWERDOWN"},
		{"what is no GPU", target.Peer{Name: "p", Known: true}, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "1", Subcomponents: []*types.Path{{Elem: []*types.PathElem{{Name: "fan"}}}}}, codes.InvalidArgument, "is no GPU"},
		{"one in use", target.Peer{Name: "p", Known: true}, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "1", Subcomponents: []*types.Path{gpu(4)}}, codes.FailedPrecondition, "gpu4 is in use by python (17)"},
		{"one whose partner is", target.Peer{Name: "p", Known: true}, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "1", Subcomponents: []*types.Path{gpu(3)}, Force: true}, codes.FailedPrecondition, "gpu4 is in use"},
	} {
		s := service(t, dir, "b1", b)
		s.Admit = func(context.Context) (target.Peer, error) { return c.peer, nil }
		if _, err := s.Reboot(t.Context(), c.req); status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if got := did(t, dir); len(got) != 1 || got[0] != "" {
		t.Errorf("done: %q", got)
	}
}

func TestAnIDIsUsedOnce(t *testing.T) {
	dir := t.TempDir()
	b := &bay{partner: map[uint32]uint32{5: 6}}
	s := service(t, dir, "b1", b)
	with := metadata.NewIncomingContext(t.Context(), metadata.Pairs(target.MetaAction, "act-1"))
	reset := &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "for a person", Subcomponents: []*types.Path{gpu(5), gpu(5)}}
	for range 3 {
		if _, err := s.Reboot(with, reset); err != nil {
			t.Fatal(err)
		}
		s = service(t, dir, "b1", b) // the agent starts anew
	}
	reset.Subcomponents = []*types.Path{gpu(1)}
	if _, err := s.Reboot(with, reset); status.Code(err) != codes.AlreadyExists {
		t.Error(err)
	}
	if got := did(t, dir); len(got) != 1 || got[0] != "--gpu-reset -i 0000:06:00.0,0000:07:00.0" {
		t.Errorf("done: %q", got)
	}
	st, err := s.RebootStatus(t.Context(), &system.RebootStatusRequest{Subcomponents: []*types.Path{gpu(5)}})
	if err != nil || st.GetReason() != "act-1" || st.GetActive() || st.GetStatus().GetStatus() != system.RebootStatus_STATUS_SUCCESS {
		t.Errorf("%v %v", st, err)
	}
	if since := time.Unix(0, int64(st.GetWhen())); !since.After(b.read) { //nolint:gosec // of this century
		t.Errorf("what was read at %s, before the reset, counts as read since %s", b.read, since)
	}
	if st, err := s.RebootStatus(t.Context(), &system.RebootStatusRequest{Subcomponents: []*types.Path{gpu(2)}}); err != nil || st.GetReason() != "" {
		t.Errorf("%v %v", st, err)
	}
	if b.released != 0 {
		t.Error("the GPUs were not taken back")
	}
	b.stuck = errors.New("a call has not returned")
	if _, err := s.Reboot(t.Context(), &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "act-2", Subcomponents: []*types.Path{gpu(1)}}); status.Code(err) != codes.Aborted {
		t.Error(err)
	}
}

// Two requests at one time: the ledger alone can say which was first.
func TestTheLedgerGivesAnIDOnce(t *testing.T) {
	l, err := OpenLedger(filepath.Join(t.TempDir(), "acts.json"), "b1")
	if err != nil {
		t.Fatal(err)
	}
	a := Act{ID: "act-1", Kind: KindReset, GPUs: []uint32{1}}
	if _, again, err := l.Begin(a); again || err != nil {
		t.Fatal(again, err)
	}
	if had, again, err := l.Begin(a); !again || err != nil || had.Outcome != Running {
		t.Error(had, again, err)
	}
}

func TestARebootIsDoneWhenTheServerHasStartedAnew(t *testing.T) {
	dir := t.TempDir()
	s := service(t, dir, "b1", nil)
	req := &system.RebootRequest{Method: system.RebootMethod_WARM, Message: "act-1"}
	if _, err := s.Reboot(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		st, err := s.RebootStatus(t.Context(), &system.RebootStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(st.GetActive(), " ", st.GetStatus().GetStatus())
	}
	if got := state(); got != "true STATUS_UNKNOWN" {
		t.Error(got)
	}
	if _, err := s.Reboot(t.Context(), &system.RebootRequest{Method: system.RebootMethod_WARM, Message: "act-2"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second reboot: %v", err)
	}
	s = service(t, dir, "b1", nil) // the agent was killed, and the server did not go down
	if got := state(); got != "false STATUS_UNKNOWN" {
		t.Error(got)
	}
	req.Message = "act-3"
	if _, err := s.Reboot(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	s = service(t, dir, "b2", nil)
	if got := state(); got != "false STATUS_SUCCESS" {
		t.Error(got)
	}
	if _, err := s.Reboot(t.Context(), req); err != nil {
		t.Error(err)
	}
	if got := did(t, dir); len(got) != 2 {
		t.Errorf("done: %q", got)
	}
}

func TestWhatCannotBeWrittenDownIsNotDone(t *testing.T) {
	dir := t.TempDir()
	s := service(t, dir, "b1", &bay{})
	s.Hand.Ledger.path = filepath.Join(dir, "none", "acts.json")
	_, err := s.Reboot(t.Context(), &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "act-1", Subcomponents: []*types.Path{gpu(1)}})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is not done") {
		t.Error(err)
	}
	if got := did(t, dir); got[0] != "" {
		t.Errorf("done: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "acts.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(filepath.Join(dir, "acts.json"), "b1"); err == nil {
		t.Error("a ledger that cannot be read is taken for none")
	}
}

// A reset that was done is no refusal, though its end cannot be written down any more.
func TestWhatWasDoneIsNotRefused(t *testing.T) {
	dir := t.TempDir()
	s := service(t, dir, "b1", &bay{})
	s.Hand.Tools = &programs{Config{NVIDIASMI: program(t, dir, "takes-the-disk-away", "rm "+dir+"/acts.json && mkdir "+dir+"/acts.json && touch "+dir+"/acts.json/x")}}
	req := &system.RebootRequest{Method: system.RebootMethod_COLD, Message: "act-1", Subcomponents: []*types.Path{gpu(1)}}
	for range 2 {
		if _, err := s.Reboot(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
}
