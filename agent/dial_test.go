package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/peer"

	"auspex/internal/target"
	"auspex/internal/tunnel/outbound"
)

func TestWhoIsDialledHasToBeSafe(t *testing.T) {
	for _, tc := range []struct {
		name   string
		listen string
		dial   []outbound.Config
		want   string // "" is fine
	}{
		{"nobody", "", nil, "nobody can reach the agent"},
		{"a server, and no listener", "", []outbound.Config{{Address: "auspex.example:9340"}}, ""},
		{"a server beside the listener", "127.0.0.1:9339", []outbound.Config{{Address: "auspex.example:9340"}}, ""},
		{"no port", "", []outbound.Config{{Address: "auspex.example"}}, "dial[0].address: "},
		{"no host", "", []outbound.Config{{Address: ":9340"}}, "dial[0].address: :9340 names no host"},
		{"plain text to loopback", "", []outbound.Config{{Address: "127.0.0.1:9340", Plain: true}}, ""},
		{"plain text over a network", "", []outbound.Config{{Address: "a:1"}, {Address: "10.0.0.1:9340", Plain: true}}, "dial[1].plain: 10.0.0.1:9340 is not loopback"},
		{"plain text that verifies", "", []outbound.Config{{Address: "127.0.0.1:9340", Plain: true, CAFile: "ca.pem"}}, "are of TLS"},
		{"hardly any retries", "", []outbound.Config{{Address: "a:1", Retry: time.Hour}}, "retry: must be at most 2m"},
		{"too many", "", make([]outbound.Config, 9), "at most 8 servers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Default()
			c.Listen, c.Dial = tc.listen, tc.dial
			if got := fmt.Sprint(c.Validate()); tc.want == "" && got != "<nil>" || !strings.Contains(got, tc.want) {
				t.Errorf("it says %s, want %s", got, tc.want)
			}
		})
	}
}

// Who was not verified when it was dialled is as whoever is on loopback.
func TestOnlyWhoWasVerifiedIsKnownForHavingBeenDialled(t *testing.T) {
	for _, tc := range []struct {
		dialled target.Dialled
		want    target.Peer
	}{
		{target.Dialled{Name: "auspex.example", Verified: true}, target.Peer{Name: "dialled auspex.example", Known: true}},
		{target.Dialled{Name: "127.0.0.1:9340"}, target.Peer{Name: "127.0.0.1"}},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: outbound.Addr("127.0.0.1:9340"), AuthInfo: tc.dialled})
		if got, err := (target.Access{Anonymous: true}).Admit(ctx); err != nil || got != tc.want {
			t.Errorf("%+v, %v; want %+v", got, err, tc.want)
		}
		if _, err := (target.Access{}).Admit(ctx); (err == nil) != tc.dialled.Verified {
			t.Errorf("%+v where nobody is let in who is not known: %v", tc.dialled, err)
		}
	}
}
