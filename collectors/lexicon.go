package collectors

import (
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/cespare/xxhash/v2"

	"auspex/schemas/auspexv1"
)

// lexicon is the series of a batch and what they are found by. Once shared, they are the names of any number of batches that
// have the same ones, in the same order, as devices of one model have, and are never changed any more.
type lexicon struct {
	symbols []string
	index   map[string]uint32 // of symbols
	list    []*auspexv1.Series
	series  map[seriesKey]Ref

	bounds     map[boundKey]Ref // the series of thresholds
	named      map[namedBound]Ref
	thresholds map[Ref]int // where [Batch.given] has them

	shared bool
	wire   []byte // symbols and list as [auspexv1.SampleColumns] has them on the wire; nil where they are not shared
	grown  bool   // since they were last looked for
	looks  int    // how often they were
}

func newLexicon() *lexicon {
	return &lexicon{
		symbols: []string{""}, index: map[string]uint32{"": 0}, series: map[seriesKey]Ref{}, bounds: map[boundKey]Ref{},
		named: map[namedBound]Ref{}, thresholds: map[Ref]int{},
	}
}

func (n *lexicon) symbol(s string) uint32 {
	if i, ok := n.index[s]; ok {
		return i
	}
	s = strings.Clone(s)
	i := uint32(len(n.symbols))
	n.symbols = append(n.symbols, s)
	n.index[s] = i
	return i
}

// own returns names that may be changed: from now on they are the batch's alone.
func (b *Batch) own() *lexicon {
	n := b.names
	if n.shared {
		n = &lexicon{
			symbols: slices.Clone(n.symbols), index: maps.Clone(n.index), list: slices.Clone(n.list), series: maps.Clone(n.series),
			bounds: maps.Clone(n.bounds), named: maps.Clone(n.named), thresholds: maps.Clone(n.thresholds), looks: n.looks,
		}
		b.names = n
	}
	n.grown = true
	return n
}

// Fork makes a batch of another device that has the names of this one.
func (b *Batch) Fork(device string) *Batch {
	if !b.names.shared {
		b.names = commonLexicons.of(b.names)
	}
	f := &Batch{names: b.names}
	f.wire.Device, f.wire.Collector = device, b.wire.Collector
	return f
}

const (
	// eager is how often names are looked for that have grown since the last batch, and maxLooks how often at all: a device
	// whose names change all the time has none in common with others.
	eager    = 4
	maxLooks = 16
)

// share makes the names of a batch those of all batches that have the same.
func (b *Batch) share() {
	n := b.names
	if n.shared || n.looks >= maxLooks {
		return
	}
	if n.grown && n.looks >= eager {
		n.grown = false // they may be settled by the next time
		return
	}
	n.grown = false
	n.looks++
	b.names = commonLexicons.of(n)
}

// common holds lexicons for as long as a batch uses them.
type common struct {
	mu   sync.Mutex
	held map[uint64][]weak.Pointer[lexicon]
}

var commonLexicons = common{held: map[uint64][]weak.Pointer[lexicon]{}}

func (c *common) of(n *lexicon) *lexicon {
	sum := n.sum()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.held[sum] {
		if o := p.Value(); o != nil && o.same(n) {
			return o
		}
	}
	n.shared = true
	n.symbols, n.list = slices.Clip(n.symbols), slices.Clip(n.list)
	n.wire, _ = (&auspexv1.SampleColumns{Symbols: n.symbols, Series: n.list}).MarshalVT() // never fails
	p := weak.Make(n)
	c.held[sum] = append(c.held[sum], p)
	runtime.AddCleanup(n, func(sum uint64) { c.drop(sum) }, sum)
	return n
}

// drop forgets names of a sum that nobody uses.
func (c *common) drop(sum uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.held[sum], func(p weak.Pointer[lexicon]) bool { return p.Value() == nil })
	if len(left) == 0 {
		delete(c.held, sum)
	} else {
		c.held[sum] = left
	}
}

func (n *lexicon) sum() uint64 {
	d := xxhash.New()
	for _, s := range n.symbols {
		_, _ = d.WriteString(s)
		_, _ = d.Write([]byte{0xff})
	}
	var b []byte
	for _, s := range n.list {
		b = binary.AppendUvarint(b[:0], uint64(s.Metric))
		b = binary.AppendUvarint(b, uint64(s.PartKind))
		b = binary.AppendUvarint(b, uint64(s.Part))
		for _, l := range s.Labels {
			b = binary.AppendUvarint(b, uint64(l))
		}
		_, _ = d.Write(append(b, 0xff))
	}
	return d.Sum64()
}

func (n *lexicon) same(o *lexicon) bool {
	return slices.Equal(n.symbols, o.symbols) && slices.EqualFunc(n.list, o.list, func(a, b *auspexv1.Series) bool {
		return a.Metric == b.Metric && a.PartKind == b.PartKind && a.Part == b.Part && slices.Equal(a.Labels, b.Labels)
	}) && maps.Equal(n.bounds, o.bounds) && maps.Equal(n.named, o.named) && maps.Equal(n.thresholds, o.thresholds)
}
