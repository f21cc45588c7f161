package bench

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// PeerSwitches plays switches whose telemetry comes as fast as it is taken.
const PeerSwitches = "switches"

// SwitchesOptions says how many updates come from how many switches.
type SwitchesOptions struct {
	Updates  int64 `json:"updates"` // of all switches together, at least
	Switches int   `json:"switches"`
	Ports    int   `json:"ports"` // of a switch
	// Each is how many updates a notification has; 0 is all of a port's counters, or of its optic's readings.
	Each int `json:"each,omitempty"`
}

// SwitchesReport is what the peer tells: where it listens, then how many updates
// each switch has sent when the last has sent all.
type SwitchesReport struct {
	Addresses []string `json:"addresses,omitempty"`
	CA        string   `json:"ca,omitempty"` // PEM
	Updates   int64    `json:"updates,omitempty"`
}

type flood struct {
	gpb.UnimplementedGNMIServer
	o    SwitchesOptions
	each int64
	left *atomic.Int64 // switches that have not sent everything
	sent *atomic.Int64
	done chan struct{}
}

func switches(ctx context.Context, options []byte, in *json.Decoder, out *sender) error {
	var o SwitchesOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	if o.Switches < 1 || o.Ports < 1 {
		return fmt.Errorf("%d switches of %d ports are too few", o.Switches, o.Ports)
	}
	cert, ca, err := selfSigned()
	if err != nil {
		return err
	}
	report := SwitchesReport{CA: string(ca)}
	var left, sent atomic.Int64
	left.Store(int64(o.Switches))
	done := make(chan struct{})
	for range o.Switches {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})))
		gpb.RegisterGNMIServer(g, &flood{
			o: o, each: (o.Updates + int64(o.Switches) - 1) / int64(o.Switches), left: &left, sent: &sent, done: done,
		})
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = g.Serve(l)
		}()
		defer func() { g.Stop(); <-served }()
		report.Addresses = append(report.Addresses, l.Addr().String())
	}
	if err := out.send(report); err != nil {
		return err
	}
	ctx, cancel := until(ctx, in)
	defer cancel()
	select {
	case <-done:
		if err := out.send(SwitchesReport{Updates: sent.Load()}); err != nil {
			return err
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// Capabilities implements gnmi.GNMIServer.
func (f *flood) Capabilities(context.Context, *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	return &gpb.CapabilityResponse{SupportedEncodings: []gpb.Encoding{gpb.Encoding_PROTO}, GNMIVersion: "0.10.0"}, nil
}

// The numbers of a port: its counters (openconfig-interfaces) and its optic's
// readings (openconfig-platform-transceiver).
var (
	floodCounters = []string{
		"in-octets", "out-octets", "in-pkts", "out-pkts", "in-errors", "out-errors", "in-fcs-errors", "in-discards", "out-discards",
		"carrier-transitions",
	}
	floodOptics = []string{"input-power", "output-power", "laser-bias-current"}
)

// Subscribe sends every port's numbers again and again.
func (f *flood) Subscribe(s gpb.GNMI_SubscribeServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	rng := mrand.New(mrand.NewPCG(uint64(f.left.Load()), 7)) //nolint:gosec // no secret
	ports := make([]floodPort, f.o.Ports)
	for i := range ports {
		ports[i] = newFloodPort(i, rng)
	}
	var sent int64
	synced := false
	for sent < f.each {
		for i := range ports {
			p := &ports[i]
			p.step(rng)
			now := time.Now().UnixNano()
			for _, all := range []*gpb.Notification{
				{Timestamp: now, Prefix: p.interfacePath, Update: p.counterUpdates()},
				{Timestamp: now, Prefix: p.opticPath, Update: p.opticUpdates()},
			} {
				each := cmp.Or(f.o.Each, len(all.Update))
				for some := range slices.Chunk(all.Update, each) {
					n := &gpb.Notification{Timestamp: now, Prefix: all.Prefix, Update: some}
					if err := s.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); err != nil {
						return err
					}
				}
				sent += int64(len(all.Update))
			}
		}
		if !synced {
			synced = true
			if err := s.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}}); err != nil {
				return err
			}
		}
	}
	f.sent.Add(sent)
	if f.left.Add(-1) == 0 {
		close(f.done)
	}
	<-s.Context().Done()
	return nil
}

type floodPort struct {
	interfacePath, opticPath *gpb.Path
	counterPaths, opticPaths []*gpb.Path
	counters                 []uint64
	load, rx, tx, bias       float64
}

func newFloodPort(i int, rng *mrand.Rand) floodPort {
	key := map[string]string{"name": "Ethernet" + strconv.Itoa(i+1)}
	p := floodPort{
		interfacePath: &gpb.Path{Elem: []*gpb.PathElem{{Name: "interfaces"}, {Name: "interface", Key: key}}},
		opticPath:     &gpb.Path{Elem: []*gpb.PathElem{{Name: "components"}, {Name: "component", Key: key}}},
		counters:      make([]uint64, len(floodCounters)), load: rng.Float64(), rx: -1 - 2*rng.Float64(), tx: 1 + rng.Float64(),
		bias: 60 + 5*rng.Float64(),
	}
	for c, name := range floodCounters {
		p.counters[c] = rng.Uint64() >> 24
		p.counterPaths = append(p.counterPaths, &gpb.Path{Elem: []*gpb.PathElem{{Name: "state"}, {Name: "counters"}, {Name: name}}})
	}
	for _, name := range floodOptics {
		p.opticPaths = append(p.opticPaths, &gpb.Path{Elem: []*gpb.PathElem{
			{Name: "transceiver"},
			{Name: "physical-channels"},
			{Name: "channel", Key: map[string]string{"index": "0"}},
			{Name: "state"},
			{Name: name},
			{Name: "instant"},
		}})
	}
	return p
}

func (p *floodPort) step(rng *mrand.Rand) {
	p.load = min(max(p.load+.1*rng.NormFloat64(), 0), 1)
	in, out := uint64(p.load*5e10*(.9+.2*rng.Float64())), uint64(p.load*5e10*(.9+.2*rng.Float64()))
	p.counters[0] += in
	p.counters[1] += out
	p.counters[2] += in / (1000 + rng.Uint64N(500))
	p.counters[3] += out / (1000 + rng.Uint64N(500))
	if rng.IntN(200) == 0 {
		p.counters[4+rng.IntN(5)]++
	}
	p.rx += .01 * rng.NormFloat64()
	p.tx += .005 * rng.NormFloat64()
	p.bias += .02 * rng.NormFloat64()
}

func (p *floodPort) counterUpdates() []*gpb.Update {
	us := make([]*gpb.Update, len(p.counters))
	for i, v := range p.counters {
		us[i] = &gpb.Update{Path: p.counterPaths[i], Val: &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: v}}}
	}
	return us
}

func (p *floodPort) opticUpdates() []*gpb.Update {
	us := make([]*gpb.Update, len(p.opticPaths))
	for i, v := range []float64{p.rx, p.tx, p.bias} {
		us[i] = &gpb.Update{Path: p.opticPaths[i], Val: &gpb.TypedValue{Value: &gpb.TypedValue_DoubleVal{DoubleVal: milli(v)}}}
	}
	return us
}

func selfSigned() (cert tls.Certificate, ca []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "bench"}, NotBefore: now.Add(-time.Hour),
		NotAfter:    now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return cert, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
