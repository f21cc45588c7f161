package gnmi

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	fakegnmi "github.com/openconfig/gnmi/testing/fake/gnmi"
	fakepb "github.com/openconfig/gnmi/testing/fake/proto"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
)

// picky is a server that refuses modes, and notes those that it was asked for.
type picky struct {
	gpb.GNMIServer
	refuses []gpb.SubscriptionList_Mode
	say     string

	mu    sync.Mutex
	asked []string
}

// pickyStream shows the first message again.
type pickyStream struct {
	gpb.GNMI_SubscribeServer
	first *gpb.SubscribeRequest
}

func (s *pickyStream) Recv() (*gpb.SubscribeRequest, error) {
	if first := s.first; first != nil {
		s.first = nil
		return first, nil
	}
	return s.GNMI_SubscribeServer.Recv()
}

func (p *picky) Subscribe(s gpb.GNMI_SubscribeServer) error {
	req, err := s.Recv()
	if err != nil {
		return err
	}
	mode := req.GetSubscribe().GetMode()
	p.mu.Lock()
	if p.asked = append(p.asked, mode.String()); slices.Contains(p.asked[:len(p.asked)-1], mode.String()) {
		p.asked = p.asked[:len(p.asked)-1]
	}
	p.mu.Unlock()
	if slices.Contains(p.refuses, mode) {
		return status.Errorf(codes.Unimplemented, p.say, strings.ToLower(mode.String()))
	}
	return p.GNMIServer.Subscribe(&pickyStream{s, req})
}

func (p *picky) modes() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.asked = nil }()
	return strings.Join(p.asked, " ")
}

// A target that refuses streams is polled, and one that refuses that too is asked once at each interval; what was found out
// is remembered for the next connection.
func TestATargetThatRefusesStreamsIsAskedOtherwise(t *testing.T) {
	stream, poll := gpb.SubscriptionList_STREAM, gpb.SubscriptionList_POLL
	for name, c := range map[string]struct {
		picky *picky
		modes string
		again string
	}{
		"polls":                           {&picky{refuses: []gpb.SubscriptionList_Mode{stream}, say: "%s subscriptions are not supported"}, "STREAM POLL", "POLL"},
		"once":                            {&picky{refuses: []gpb.SubscriptionList_Mode{stream, poll}, say: "%s subscriptions are not supported"}, "STREAM POLL ONCE", "ONCE"},
		"polls, by one who says not what": {&picky{refuses: []gpb.SubscriptionList_Mode{stream}, say: "no%.0s"}, "STREAM POLL", "POLL"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			c.picky.GNMIServer = g
			state := func(s string) {
				g.tell(t, &gpb.Notification{Update: []*gpb.Update{text0("interfaces/interface[name=E1]/state/oper-status", s)}})
			}
			rec, s := collectortest.NewRecorder(), collectortest.Settings()
			s.Metrics = prometheus.NewRegistry()
			state("UP")
			collector, stop := run(t, served(t, c.picky), s, rec)
			fallbacks := collector.(*subscriber).metrics.fallbacks //nolint:forcetypeassert // it is ours
			samples(t, rec, 1)
			for i, s := range []string{"DOWN", "UP"} {
				state(s)
				wait(t, rec, i+1)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if got := c.picky.modes(); got != c.modes || testutil.ToFloat64(fallbacks) != float64(strings.Count(got, " ")) {
				t.Errorf("asked %s, %v counted", got, testutil.ToFloat64(fallbacks))
			}
			state("DOWN")
			stop = again(collector, rec)
			wait(t, rec, 3)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if got := c.picky.modes(); got != c.again {
				t.Errorf("asked %s again", got)
			}
			if d := cmp.Diff([]string{"port.down  raised E1", "port.down  cleared E1", "port.down  raised E1"}, events(rec)); d != "" {
				t.Error(d)
			}
		})
	}
}

// polled is the agent of github.com/openconfig/gnmi/testing/fake, which answers a subscription and each poll of it with
// what it has then. One that is strict answers polls alone.
type polled struct {
	gpb.UnimplementedGNMIServer
	agent  *fakegnmi.Client
	strict bool
}

func fixed(all ...*gpb.SubscribeResponse) *fakepb.Config {
	return &fakepb.Config{Target: "leaf-1", Generator: &fakepb.Config_Fixed{Fixed: &fakepb.FixedGenerator{Responses: all}}}
}

func (p *polled) Subscribe(s gpb.GNMI_SubscribeServer) error {
	if !p.strict {
		defer p.agent.Close()
		return p.agent.Run(s)
	}
	req, err := s.Recv()
	if err != nil {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	defer p.agent.Close()
	return p.agent.Run(&pickyStream{s, req})
}

// An answer to a poll tells all that there is: what it does not is no more.
func TestAPollTellsWhatIsNoMore(t *testing.T) {
	at := time.Now().UnixNano()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			p := &polled{strict: strict, agent: fakegnmi.NewClient(fixed(oper("E1", "UP", at), oper("E2", "UP", at), octets(1, 7)))}
			cfg, rec := config(), collectortest.NewRecorder()
			cfg.Mode, cfg.Timeout = "poll", time.Minute
			c, err := cfg.New(served(t, p), collectortest.Settings())
			if err != nil {
				t.Fatal(err)
			}
			stop := again(c, rec)
			samples(t, rec, 3)
			p.agent.SetConfig(fixed(oper("E2", "DOWN", at+1), octets(2, 7)))
			wait(t, rec, 2)
			p.agent.SetConfig(fixed(octets(3, 7))) // an answer without any port tells of none
			n := len(p.agent.Requests())
			waittest.For(t, "it is polled on", func() bool { return len(p.agent.Requests()) > n+2 })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			got := events(rec)
			slices.Sort(got)
			if d := cmp.Diff([]string{"port.down  raised E2", "port.down removed  E1"}, got); d != "" {
				t.Error(d)
			}
		})
	}
}
