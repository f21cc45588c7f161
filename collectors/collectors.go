// Package collectors turns what devices say into batches for the bus. A
// collector is one small package that registers its configuration from init;
// package all imports every one of them. It says whose device it reads and gives
// raw hints at parts (kind and name on the device); enrichment resolves them.
package collectors

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Collector streams batches from one device until ctx is done.
type Collector interface {
	// Run returns nil when ctx is done; any other return is counted, told as a
	// loss of contact, and tried again with back-off and jitter.
	Run(ctx context.Context, out Emitter) error
}

// Emitter accepts batches. Emit blocks while the bus applies back-pressure and
// returns when the batch is durable; it does not retain the batch.
type Emitter interface {
	Emit(ctx context.Context, b *auspexv1.Batch) error
}

// Config is the user's YAML for one collector and its constructor. The value
// returned by the registered function holds the defaults.
type Config interface {
	// Targets picks the devices of the inventory that this collector reads.
	Targets(resources []schemas.Resource) []schemas.Resource
	// New makes the collector of one target. It checks the configuration and
	// performs no I/O.
	New(target schemas.Resource, s Settings) (Collector, error)
}

// Settings is what the program, not the user, gives a collector.
type Settings struct {
	Log     *slog.Logger
	Now     func() time.Time
	Cursors Cursors
	Secrets Secrets
	Metrics prometheus.Registerer
	// Gate keeps collectors and control from speaking to one board controller at
	// the same time; nil lets everyone through.
	Gate Gate
	// Tunnels reaches the agents that dial in; nil where none can.
	Tunnels Tunnels
	// Cabling is told what is at the other ends of cables; nil where nobody asks.
	Cabling Cabling
	// Taken are the signs that the collector yields ([Evidence]) and that another
	// one brings of its target. A collector is made anew when they change.
	Taken []Sign
}

// Gate lets one operation at a time through to a server's board controller.
type Gate interface {
	// Acquire waits for the turn; the caller calls release once.
	Acquire(ctx context.Context, server string) (release func(), err error)
}

// Cabling holds what ports see at the other ends of their cables against the inventory.
type Cabling interface {
	// Seen is told all that some ports of a device see now. A port that sees nothing is not
	// told: nothing follows from that.
	Seen(ctx context.Context, device string, neighbors []schemas.Neighbor) error
}

// Tunnels opens connections to agents that have dialled in.
type Tunnels interface {
	// Dial returns a connection to the agent of a server.
	Dial(ctx context.Context, server string) (net.Conn, error)
}

// Enter takes the turn of a server's board controller; without a gate it is free.
func (s Settings) Enter(ctx context.Context, server string) (release func(), err error) {
	if s.Gate == nil {
		return func() {}, nil
	}
	return s.Gate.Acquire(ctx, server)
}

// Cursors keep the position of a reader in a device's log over restarts. A
// position is set after the bus has acknowledged what came before it.
type Cursors interface {
	// Cursor returns "" when there is none.
	Cursor(ctx context.Context, collector, device string) (string, error)
	SetCursor(ctx context.Context, collector, device, position string) error
}

// Secrets resolves a resource's credential reference.
type Secrets interface {
	// Secret returns the user and the password behind a reference.
	Secret(ctx context.Context, ref string) (user, password string, err error)
}

// Sight is what the word of a collector is worth: whose eyes it reads with, and the
// sources that its events name. Who repairs a part believes the eyes that saw its fault.
type Sight struct {
	View    schemas.View
	Sources []string // schemas.Source…; none for a collector without events
}

var (
	mu       sync.Mutex
	registry = map[string]func() Config{}
	sights   = map[string]Sight{}        // by collector
	views    = map[string]schemas.View{} // by collector and by source
)

// Register makes a collector known under its YAML key. It panics on a duplicate, a
// view that is none of schemas.Views, and a source that another view has.
func Register(name string, sight Sight, defaults func() Config) {
	mu.Lock()
	defer mu.Unlock()
	if _, dup := registry[name]; dup {
		panic("collectors: duplicate " + name)
	}
	if !slices.Contains(schemas.Views(), sight.View) {
		panic("collectors: " + name + " has no view")
	}
	for _, key := range append([]string{name}, sight.Sources...) {
		if old, ok := views[key]; ok && old != sight.View {
			panic("collectors: " + key + " has two views")
		}
		views[key] = sight.View
	}
	registry[name], sights[name] = defaults, sight
}

// SightOf returns what the named collector declared.
func SightOf(name string) Sight {
	mu.Lock()
	defer mu.Unlock()
	return sights[name]
}

// ViewOf returns the view of a collector or of a source of events: none where no
// collector has declared it.
func ViewOf(name string) schemas.View {
	mu.Lock()
	defer mu.Unlock()
	if v, ok := views[name]; ok {
		return v
	}
	return schemas.ViewNone
}

// Lookup returns the default configuration of the named collector.
func Lookup(name string) (Config, error) {
	mu.Lock()
	defer mu.Unlock()
	f, ok := registry[name]
	if !ok {
		return nil, fmt.Errorf("unknown collector %q; known are %s", name, strings.Join(names(), ", "))
	}
	return f(), nil
}

// Names lists the registered collectors in order.
func Names() []string {
	mu.Lock()
	defer mu.Unlock()
	return names()
}

func names() []string {
	var out []string
	for n := range registry {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// With returns the resources of a kind, or of any where it is "", that have an
// attribute: what a collector finds its targets by.
func With(resources []schemas.Resource, kind, attr string) []schemas.Resource {
	var out []schemas.Resource
	for _, r := range resources {
		if (kind == "" || r.Kind == kind) && r.Attrs.Get(attr) != "" {
			out = append(out, r)
		}
	}
	return out
}

// DeviceOf returns whose device a target is: a bmc speaks for the server that it is
// a part of, everything else for itself.
func DeviceOf(target schemas.Resource) string {
	if target.Kind == schemas.KindBMC && target.Parent != "" {
		return target.Parent
	}
	return target.ID
}
