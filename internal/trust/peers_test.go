package trust_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/trust"
)

type client struct {
	peer trust.Peer
	key  string
	tls  *trust.TLS
}

func (c client) Trusts() (trust.Peer, string, *trust.TLS) { return c.peer, c.key, c.tls }

func TestAllWhoReachADeviceTrustTheSame(t *testing.T) {
	ca, other, insecure := trust.TLS{CAFile: "ca.pem"}, trust.TLS{CAFile: "other.pem"}, trust.TLS{InsecureSkipVerify: true}
	for _, tc := range []struct {
		name                      string
		shared, collector, driver trust.TLS
		wantCollector, wantDriver trust.TLS
		differ                    []string
	}{
		{name: "nobody says anything"},
		{name: "one section for both", shared: ca, wantCollector: ca, wantDriver: ca},
		{name: "the section lets both go unverified", shared: insecure, wantCollector: insecure, wantDriver: insecure},
		{name: "what the collector trusts", collector: ca, wantCollector: ca, wantDriver: ca},
		{name: "what control trusts", driver: ca, wantCollector: ca, wantDriver: ca},
		{
			name: "a collector that does not verify makes no control of it", collector: insecure, wantCollector: insecure,
			differ: []string{
				"collectors.redfish.tls and control.bmc differ (insecure_skip_verify): one may reach what the other cannot; set trust.bmc alone",
			},
		},
		{
			name: "two authorities", collector: ca, driver: other, wantCollector: ca, wantDriver: other,
			differ: []string{"collectors.redfish.tls and control.bmc differ (ca_file): one may reach what the other cannot; set trust.bmc alone"},
		},
		{
			name: "one beside the section", shared: ca, driver: other, wantCollector: ca, wantDriver: other,
			differ: []string{"trust.bmc and control.bmc differ (ca_file): one may reach what the other cannot; set trust.bmc alone"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			slurm := trust.TLS{CAFile: "slurm.pem"}
			p := trust.Peers{BMC: tc.shared}
			uses := []trust.Use{
				{"collectors.redfish", client{trust.BMC, "tls", &tc.collector}},
				{"control.bmc", client{trust.BMC, "", &tc.driver}},
				{"control.slurm", client{trust.Scheduler, "tls", &slurm}},
			}
			for range 2 { // as when a configuration is completed again
				p.Share(uses)
			}
			if tc.collector != tc.wantCollector || tc.driver != tc.wantDriver || slurm.CAFile != "slurm.pem" {
				t.Errorf("collector %+v, driver %+v, slurm %+v", tc.collector, tc.driver, slurm)
			}
			if d := cmp.Diff(tc.differ, p.Differences(uses)); d != "" {
				t.Error(d)
			}
		})
	}
}
