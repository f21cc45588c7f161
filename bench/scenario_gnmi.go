package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"auspex/schemas"
)

// ingestSizes are how many updates a notification has, and ingestRounds how often each is measured.
var ingestSizes = []int{1, 8}

const ingestRounds = 3

// gnmiIngest takes streams of switches that send as fast as they are read, to the bus, where every
// update must be found again. Before each run, a bare client of grpc-go receives as much and forgets
// it: what the product takes of that is the ratio, the median of the rounds.
func (b *bencher) gnmiIngest(ctx context.Context) (res Result, err error) {
	o := SwitchesOptions{Switches: 4, Ports: 64, Updates: max(int64(b.n/(len(ingestSizes)*ingestRounds)), 1)}
	detail := map[string]any{"switches": o.Switches, "ports": o.Ports, "rounds": ingestRounds}
	var sum Result
	batches := int64(0)
	for _, o.Each = range ingestSizes {
		var ratios, product, bare []float64
		for round := range ingestRounds {
			alone, err := b.received(ctx, o)
			if err != nil {
				return res, fmt.Errorf("bare client: %w", err)
			}
			one, n, err := b.ingested(ctx, o, round)
			if err != nil {
				return res, err
			}
			perUpdate := func(r Result) float64 { return r.CPUSeconds * 1e6 / float64(r.N) }
			product, bare = append(product, perUpdate(one)), append(bare, perUpdate(alone))
			ratios = append(ratios, perUpdate(one)/max(perUpdate(alone), 1e-9))
			sum.N += one.N
			sum.Seconds += one.Seconds
			sum.CPUSeconds += one.CPUSeconds
			sum.MaxRSS, sum.Go, sum.CPU = one.MaxRSS, one.Go, one.CPU
			batches += n
		}
		name := fmt.Sprintf("_%d", o.Each)
		detail["ratio"+name], detail["cpu_us_per_update"+name], detail["bare_us_per_update"+name] = round(median(ratios)), round(median(product)), round(median(bare))
	}
	detail["batches"] = batches
	sum.Scenario, sum.Unit, sum.Detail = b.name, "updates", detail
	sum.Seconds, sum.CPUSeconds = round(sum.Seconds), round(sum.CPUSeconds)
	sum.PerSecond, sum.PerCPUSecond = round(float64(sum.N)/sum.Seconds), round(float64(sum.N)/max(sum.CPUSeconds, 1e-9))
	return sum, nil
}

func median(vs []float64) float64 {
	vs = slices.Sorted(slices.Values(vs))
	return vs[len(vs)/2]
}

// ingested measures the product, and returns how many batches it made of it.
func (b *bencher) ingested(ctx context.Context, o SwitchesOptions, round int) (res Result, batches int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	peer, err := StartPeer(ctx, PeerSwitches, o, b.err)
	if err != nil {
		return res, 0, err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	var report SwitchesReport
	if err := peer.Receive(&report); err != nil {
		return res, 0, err
	}
	ca := b.path("ca.pem")
	if err := os.WriteFile(ca, []byte(report.CA), 0o600); err != nil {
		return res, 0, err
	}
	t := schemas.Topology{Version: 1}
	for i, addr := range report.Addresses {
		t.Resources = append(
			t.Resources,
			schemas.Resource{ID: fmt.Sprintf("leaf-r%02d", i+1), Kind: schemas.KindSwitch, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrGNMIAddress: addr})},
		)
	}
	file, err := b.inventory(t)
	if err != nil {
		return res, 0, err
	}
	s, err := b.product(
		fmt.Sprintf("data=%s-%d-%d", b.path("data"), o.Each, round), "inventory.file="+file, "collect.start_spread=0s",
		"collectors.gnmi.sample_interval=1s", "collectors.gnmi.tls.ca_file="+ca,
	)
	if err != nil {
		return res, 0, err
	}
	l, err := b.start(ctx, s, s.Components("state", "bus")...)
	if err != nil {
		return res, 0, err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	meter := StartMeter()
	reader, err := b.start(ctx, s, s.Components("collect")...)
	if err != nil {
		return res, 0, err
	}
	defer func() { err = errors.Join(err, reader.stop()) }()
	if err := peer.Receive(&report); err != nil {
		return res, 0, err
	}
	left := func() int64 { return int64(total(s.Metrics, "auspex_collectors_gnmi_samples_coalesced_total", "", "")) }
	err = reader.await(ctx, patience, "samples", func() bool {
		return int64(total(s.Metrics, "auspex_collectors_samples_total", "collector", "gnmi"))+left() >= report.Updates
	})
	res = meter.Stop(b.name, "updates", report.Updates)
	if err != nil {
		return res, 0, err
	}
	got, err := readBack(ctx, s.Parts().Bus, int64(total(s.Metrics, "auspex_collectors_batches_total", "collector", "gnmi")))
	if err != nil {
		return res, 0, err
	}
	if n := left(); n > 0 {
		return res, 0, fmt.Errorf("the bus was slow for more than a second, and %d samples were left out: the machine is too busy to measure on", n)
	}
	if got.Samples != report.Updates {
		return res, 0, fmt.Errorf("%d updates were sent, %d samples are on the bus", report.Updates, got.Samples)
	}
	return res, got.Batches, nil
}

// received measures a client that only receives.
func (b *bencher) received(ctx context.Context, o SwitchesOptions) (res Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	peer, err := StartPeer(ctx, PeerSwitches, o, b.err)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, peer.Close()) }()
	var report SwitchesReport
	if err := peer.Receive(&report); err != nil {
		return res, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(report.CA))
	creds := credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	meter := StartMeter()
	type end struct {
		n   int64
		err error
	}
	ends := make(chan end)
	for _, addr := range report.Addresses {
		go func() {
			n, err := receive(ctx, addr, creds, (o.Updates+int64(o.Switches)-1)/int64(o.Switches))
			ends <- end{n, err}
		}()
	}
	n := int64(0)
	for range report.Addresses {
		e := <-ends
		n += e.n
		err = errors.Join(err, e.err)
	}
	res = meter.Stop(b.name, "updates", n)
	return res, err
}

// receive takes so many updates of a switch.
func receive(ctx context.Context, addr string, creds credentials.TransportCredentials, least int64) (n int64, err error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := gpb.NewGNMIClient(conn).Subscribe(ctx)
	if err == nil {
		err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{}}})
	}
	for err == nil && n < least {
		var r *gpb.SubscribeResponse
		if r, err = stream.Recv(); err == nil {
			n += int64(len(r.GetUpdate().GetUpdate()))
		}
	}
	return n, err
}
