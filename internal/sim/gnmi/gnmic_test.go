package gnmi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmic/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// TestGnmicReadsTheSwitch drives the switch over TLS with a client of other authors.
func TestGnmicReadsTheSwitch(t *testing.T) {
	sw := newFake(2)
	https := httptest.NewTLSServer(nil) // for its certificate
	defer https.Close()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&https.TLS.Certificates[0])))
	gpb.RegisterGNMIServer(srv, NewServer(sw))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	defer func() {
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	target, err := api.NewTarget(
		api.Name("leaf-r01"), api.Address(lis.Addr().String()), api.Username("admin"), api.Password("secret"), api.SkipVerify(true),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := target.CreateGNMIClient(ctx); err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	capabilities, err := target.Capabilities(ctx)
	if err != nil || capabilities.GetGNMIVersion() != Version || len(capabilities.GetSupportedModels()) < 5 {
		t.Errorf("capabilities %v: %v", capabilities, err)
	}
	get, err := api.NewGetRequest(api.Path("openconfig:/interfaces/interface[name=*]/state/oper-status"), api.EncodingJSON_IETF())
	if err != nil {
		t.Fatal(err)
	}
	values, err := target.Get(ctx, get)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range values.GetNotification() {
		collect(got, n)
	}
	if len(got) != 2 || got[oper1] != `"UP"` {
		t.Errorf("get: %v", got)
	}
	// The origin may stand in the prefix, as the specification wants it for several paths.
	const session = "/network-instances/network-instance[name=default]/protocols/protocol[identifier=BGP][name=BGP]/bgp/neighbors/neighbor[neighbor-address=10.254.0.1]/state/session-state"
	get, err = api.NewGetRequest(api.Prefix("openconfig:/network-instances"), api.EncodingJSON_IETF(),
		api.Path("network-instance[name=*]/protocols/protocol[name=*]/bgp/neighbors/neighbor[neighbor-address=*]/state/session-state"))
	if err != nil {
		t.Fatal(err)
	}
	if values, err = target.Get(ctx, get); err != nil {
		t.Fatal(err)
	}
	clear(got)
	for _, n := range values.GetNotification() {
		if o := n.GetPrefix().GetOrigin(); o != "openconfig" {
			t.Errorf("origin of the answer is %q", o)
		}
		collect(got, n)
	}
	if len(got) != 1 || got[session] != `"ESTABLISHED"` {
		t.Errorf("sessions: %v", got)
	}
	once, err := api.NewSubscribeRequest(
		api.SubscriptionListModeONCE(), api.EncodingPROTO(), api.Subscription(api.Path("/components")),
		api.Subscription(api.Path("/interfaces")),
	)
	if err != nil {
		t.Fatal(err)
	}
	// The client sends the end of a stream as an error, which must be read.
	clear(got)
	responses, errs := target.SubscribeOnceChan(ctx, once)
	for open := true; open; {
		select {
		case r := <-responses:
			collect(got, r.GetUpdate())
		case err := <-errs:
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			open = false
		}
	}
	for path, want := range map[string]string{
		oper1: "UP",
		"/components/component[name=FAN1]/fan/state/speed":                                                                "9000",
		"/components/component[name=Ethernet1]/transceiver/physical-channels/channel[index=0]/state/output-power/instant": "0",
	} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
	stream, err := api.NewSubscribeRequest(api.SubscriptionListModeSTREAM(), api.EncodingPROTO(), api.UpdatesOnly(true),
		api.Subscription(api.Path("/interfaces/interface[name=*]/state/oper-status"), api.SubscriptionModeON_CHANGE()))
	if err != nil {
		t.Fatal(err)
	}
	states, stop := context.WithCancel(ctx)
	updates, errs := target.SubscribeStreamChan(states, stream, "states")
	defer func() {
		stop()
		<-errs
	}()
	for {
		select {
		case r := <-updates:
			if r.GetSyncResponse() {
				sw.change(func() { sw.ports[0].OperUp = false })
				continue
			}
			clear(got)
			collect(got, r.GetUpdate())
			if len(got) != 1 || got[oper1] != "DOWN" {
				t.Errorf("change: %v", got)
			}
			return
		case err := <-errs:
			t.Fatal(err)
		}
	}
}
