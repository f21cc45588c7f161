package bench

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"time"

	"auspex/internal/run"
	"auspex/internal/store/join"
	"auspex/internal/tunnel/outbound"
	"auspex/schemas"
)

const (
	fewAgents     = 100
	dialledAgents = 500
	manyAgents    = 10_000
)

// dialIn measures what node agents cost that have dialled in: real ones, in processes of their
// own, and this process collects from them in n seconds, with its bus and its store. It does so
// with few and with more of them; what each of these added is what many more would add, which is
// reckoned and called so.
func (b *bencher) dialIn(ctx context.Context, r *Result) (err error) {
	cert, ca, err := selfSigned()
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	caFile, keyFile, tokenFile := b.path("tunnel.pem"), b.path("tunnel.key"), b.path("token")
	if err := errors.Join(os.WriteFile(caFile, ca, 0o600), os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)); err != nil {
		return err
	}
	t := schemas.Topology{Version: 1}
	var servers []string
	for i := range dialledAgents {
		id := fmt.Sprintf("gpu-%04d", i)
		servers = append(servers, id)
		t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
			schemas.AttrAgentAddress: schemas.AgentDialsIn, schemas.AttrSerial: serialOf(id),
		})})
	}
	file, err := b.inventory(t)
	if err != nil {
		return err
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	begin := func() (*Product, *live, error) {
		s, err := b.product("inventory.file="+file, "collectors.agent.timeout=10s", "tunnel.listen="+addr, "tunnel.tls.cert_file="+caFile, "tunnel.tls.key_file="+keyFile)
		if err != nil {
			return nil, nil, err
		}
		l, err := b.start(ctx, s, s.Components("state", "bus", "tunnel", "collect")...)
		return s, l, err
	}
	var peers []*Peer
	defer func() { // after who reads them, to whom their end would be the loss of each
		for _, p := range peers {
			err = errors.Join(err, p.Close())
		}
	}()
	s, l, err := begin()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	token, _, err := join.New(s.Parts().DB, s.Parts().Inventory, nil).Create(ctx, "bench", join.Spec{Name: "bench", Uses: dialledAgents})
	if err == nil {
		err = os.WriteFile(tokenFile, []byte(token+"\n"), 0o600)
	}
	if err != nil {
		return err
	}
	quiet := anonymous(os.Getpid())
	var few, all dialled
	for lo, hi := 0, fewAgents; lo < dialledAgents; lo, hi = hi, dialledAgents {
		peer, err := StartPeer(ctx, PeerAgents, AgentsOptions{
			Servers: servers[lo:hi], Dir: b.path("agents"), Dial: outbound.Config{Address: addr, CAFile: caFile, TokenFile: tokenFile},
		}, b.err)
		if err != nil {
			return err
		}
		peers = append(peers, peer)
		few = all
		if err := peer.Receive(&all.report); err != nil {
			return err
		}
		if err := b.dialled(ctx, s, l, hi, &all); err != nil {
			return err
		}
	}
	// All of them lose who reads them, and find it again.
	if err := l.stop(); err != nil {
		return err
	}
	cpu, began := selfCPU(), time.Now()
	anew, live, err := begin()
	if err != nil {
		return err
	}
	l = live
	if err := b.connected(ctx, anew, l, dialledAgents); err != nil {
		return err
	}
	again := time.Since(began)
	_ = run.Sleep(ctx, time.Minute-again) // what they tell first is read
	storm := (selfCPU() - cpu).Seconds() - all.cores*time.Since(began).Seconds()
	more := func(few, all float64) float64 {
		return all + (all-few)/(dialledAgents-fewAgents)*(manyAgents-dialledAgents)
	}
	maps.Copy(r.Detail, map[string]any{
		"dialled_agents": []int{fewAgents, dialledAgents}, "dialled_leaves": all.report.Leaves, "dialled_leaves_moving": all.report.Moving,
		"dialled_in_seconds": round(all.within.Seconds()), "dialled_samples_per_second": round(all.samples / float64(b.n)),
		"dialled_again_in_seconds": round(again.Seconds()), "dialled_again_cpu_seconds": round(storm),
		"dialled_core_percent":   []float64{round(100 * few.cores), round(100 * all.cores)},
		"dialled_rss_anon_bytes": []int64{quiet, few.rss, all.rss}, "dialled_live_bytes": []uint64{few.live, all.live},
		"extrapolated_agents": manyAgents, "extrapolated_core_percent": round(100 * more(few.cores, all.cores)),
		"extrapolated_rss_anon_bytes": int64(more(float64(few.rss), float64(all.rss))),
	})
	return nil
}

// connected waits until so many agents have dialled in, and are read.
func (b *bencher) connected(ctx context.Context, s *Product, l *live, agents int) error {
	return l.await(ctx, patience, "agents", func() bool {
		return gauge(s.Metrics, "auspex_tunnel_machines") == float64(agents) && gauge(s.Metrics, "auspex_tunnel_sessions") >= float64(agents)
	})
}

// dialled is what so many agents cost.
type dialled struct {
	report  AgentsReport
	within  time.Duration // the last of them
	samples float64
	cores   float64
	rss     int64
	live    uint64
}

func (b *bencher) dialled(ctx context.Context, s *Product, l *live, agents int, d *dialled) error {
	began := time.Now()
	if err := b.connected(ctx, s, l, agents); err != nil {
		return err
	}
	d.within = time.Since(began)
	_ = run.Sleep(ctx, 30*time.Second) // the first reading of all is over
	before, cpu := total(s.Metrics, "auspex_collectors_samples_total", "collector", "agent"), selfCPU()
	_ = run.Sleep(ctx, time.Duration(b.n)*time.Second)
	d.cores = (selfCPU() - cpu).Seconds() / float64(b.n)
	d.samples = total(s.Metrics, "auspex_collectors_samples_total", "collector", "agent") - before
	d.rss, d.live = anonymous(os.Getpid()), inUse()
	if least := float64(agents * d.report.Moving * (b.n/10 - 1)); d.samples < least {
		return fmt.Errorf("%d agents brought %.0f samples, want %.0f", agents, d.samples, least)
	}
	return nil
}

// inUse is what this process holds: what is reachable on its heap, and its stacks. Between two
// collections the heap grows to twice that.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// freeAddress is an address of loopback on which nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
