package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	node "auspex/agent"
	"auspex/agent/acts"
	"auspex/agent/nvml"
	"auspex/internal/run"
	"auspex/internal/target"
	"auspex/internal/tunnel/outbound"
	"auspex/schemas/yang"
)

// PeerAgents plays node agents that dial in: the real ones, with GPUs that are numbers.
const PeerAgents = "agents"

// AgentsOptions says which agents dial whom.
type AgentsOptions struct {
	Servers []string        `json:"servers"`
	Dir     string          `json:"dir"` // of what they keep
	Dial    outbound.Config `json:"dial"`
}

// AgentsReport is what the peer tells when all of them run.
type AgentsReport struct {
	Leaves int `json:"leaves"` // of each
	Moving int `json:"moving"` // from one reading to the next
}

func agents(ctx context.Context, options []byte, in *json.Decoder, out *sender) error {
	var o AgentsOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	ctx, cancel := until(ctx, in)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	var report AgentsReport
	for _, server := range o.Servers {
		cfg := node.Default()
		cfg.Data, cfg.Listen, cfg.Dial = filepath.Join(o.Dir, server), "", []outbound.Config{o.Dial}
		cfg.Kernel.Disabled, cfg.Host.Disabled = true, true
		if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
			return err
		}
		a, err := node.NewOn(node.Machine{
			GPUs: func(n nvml.Needs) node.GPUs {
				g := newMoving(n.Tree)
				report = AgentsReport{Leaves: len(g.still) + len(g.moving), Moving: len(g.moving)}
				return g
			},
			About: &outbound.About{Hostname: server, Serial: serialOf(server)},
		}, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		wg.Go(func() { _ = a.Run(ctx, nil) })
	}
	if err := out.send(report); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func serialOf(server string) string { return "BENCH-" + server }

// moving are eight GPUs with the leaves of NVLink 4, of which a tenth moves.
type moving struct {
	acts.GPUs

	tree          *target.Tree
	still, moving []target.Ref
	text          map[target.Ref]bool
}

// words are in the names of leaves that move from one reading to the next.
var words = []string{"utilization", "temperature", "energy", "-clock", "memory-used", "memory-free", "received", "transmitted", "power-violation"}

func newMoving(tree *target.Tree) *moving {
	m := &moving{tree: tree, text: map[target.Ref]bool{}}
	for gpu := range GPUsPerServer {
		for path, leaf := range yang.Leaves {
			rest, ok := strings.CutPrefix(path, "/gpus/gpu/")
			if !ok || strings.Contains(path, "/config/") || strings.Contains(leaf.About, "NVLink 5") || strings.HasPrefix(rest, "process/") {
				continue
			}
			base := fmt.Sprintf("/gpus/gpu[name=gpu%d]/", gpu)
			var paths []string
			switch {
			case strings.HasPrefix(rest, "nvlink/"):
				for link := range 18 {
					paths = append(paths, fmt.Sprintf("%snvlink[link=%d]/%s", base, link, strings.TrimPrefix(rest, "nvlink/")))
				}
			case strings.HasPrefix(rest, "ecc/"):
				for _, at := range []string{"l2", "device", "sram"} {
					paths = append(paths, fmt.Sprintf("%secc[location=%s]/%s", base, at, strings.TrimPrefix(rest, "ecc/")))
				}
			case strings.HasPrefix(rest, "state/"):
				paths = []string{base + rest}
			}
			moves := path == "/gpus/gpu/state/power" ||
				strings.HasPrefix(rest, "state/") && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(rest, w) && !strings.Contains(rest, "max") })
			for _, p := range paths {
				ref := tree.Leaf(p)
				if moves {
					m.moving = append(m.moving, ref)
				} else {
					m.still = append(m.still, ref)
				}
				m.text[ref] = leaf.Type == "string"
			}
		}
	}
	return m
}

// Run implements [node.GPUs].
func (m *moving) Run(ctx context.Context) {
	write := func(refs []target.Ref, n uint64) {
		w := m.tree.Write(time.Now())
		defer w.Close()
		for i, ref := range refs {
			if m.text[ref] {
				w.Text(ref, "NVIDIA H100 80GB HBM3")
			} else {
				w.Uint(ref, n*uint64(i+1)) //nolint:gosec // an index
			}
		}
	}
	write(m.still, 1)
	for n := uint64(1); ; n++ {
		write(m.moving, n)
		if run.Sleep(ctx, 10*time.Second) != nil {
			return
		}
	}
}

// Set implements [node.GPUs].
func (*moving) Set(context.Context, string, []nvml.Wish) error { return nil }
