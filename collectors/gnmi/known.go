package gnmi

import (
	"fmt"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/internal/gnmiclient"
)

// known are the paths of a stream whose values are numbers, as they lie in its messages. A target tells
// the same ones again and again: what a path is the sample of is found out once.
type known struct {
	branches map[string]*branch // by prefix
	last     *branch
	n        int
	found    []found // of the message that is read
}

// branch is what is known below a prefix.
type branch struct {
	prefix string
	series map[string]*series // by path
}

// series is what the numbers of a path are: of a thing's leaf, of a preset's metric (ref), or of nothing.
type series struct {
	thing *thing
	place place
	refs  *[numbers]collectors.Ref
	ref   collectors.Ref
}

type found struct {
	*series
	value float64
}

// maxKnown bounds the paths that are remembered; the others are read each time anew.
const maxKnown = 1 << 16

func (k *known) begin() {
	if k.branches == nil {
		k.branches = map[string]*branch{}
	}
	clear(k.branches)
	k.last, k.n = nil, 0
}

func (k *known) branch(prefix []byte) *branch {
	if k.last == nil || k.last.prefix != string(prefix) {
		k.last = k.branches[string(prefix)]
	}
	return k.last
}

// response reads a message. Where it has nothing but numbers of known paths, it is looked at where it
// lies; otherwise it is taken apart.
func (st *state) response(r *gnmiclient.Response) error {
	if st.numbers(r) {
		return nil
	}
	n := &gpb.Notification{}
	if err := proto.Unmarshal(r.Raw, n); err != nil {
		return fmt.Errorf("%w: malformed notification", collectors.ErrProtocol)
	}
	st.notification(n)
	st.learn(r, n)
	return nil
}

func (st *state) numbers(r *gnmiclient.Response) bool {
	if r.Replaces {
		return false
	}
	b := st.known.branch(r.Prefix)
	if b == nil {
		return false
	}
	all := st.known.found[:0]
	for path, v := range r.Updates() {
		s := b.series[string(path)]
		x, ok := v.Number()
		if s == nil || !ok || v.Kind == gnmiclient.Bool {
			return false
		}
		all = append(all, found{s, x})
	}
	st.known.found = all
	at := time.Unix(0, r.Timestamp)
	if r.Timestamp <= 0 {
		at = st.s.settings.Now()
	}
	st.s.metrics.updates.Add(float64(len(all)))
	for i := range all {
		switch f := &all[i]; {
		case f.thing != nil:
			st.sample(f.thing, &f.place, f.refs, f.value, at)
		case f.ref != noRef:
			st.batch.Sample(f.ref, at, f.value)
		default:
			st.s.metrics.unmatched.Inc()
		}
	}
	return true
}

// learn remembers the numbers of a message that was taken apart.
func (st *state) learn(r *gnmiclient.Response, n *gpb.Notification) {
	b := st.known.branch(r.Prefix)
	i := -1
	for path, v := range r.Updates() {
		i++
		if _, ok := v.Number(); !ok || v.Kind == gnmiclient.Bool || st.known.n >= maxKnown || i >= len(n.GetUpdate()) {
			continue
		}
		if b != nil && b.series[string(path)] != nil {
			continue
		}
		e := pathOf(n.GetPrefix(), n.GetUpdate()[i].GetPath())
		s := &series{place: locate(&e), ref: noRef}
		switch {
		case s.place.leaf >= numbers: // what a number of a state is, its own reader knows
			continue
		case s.place.leaf != leafNone:
			if s.thing = st.thing(s.place); s.thing == nil {
				continue
			}
			if s.refs = s.thing.refsOf(s.place.lane); s.refs == nil {
				continue
			}
		default:
			s.ref = st.seriesOf(&e)
		}
		if b == nil {
			b = &branch{prefix: string(r.Prefix), series: map[string]*series{}}
			st.known.branches[b.prefix], st.known.last = b, b
		}
		b.series[string(path)] = s
		st.known.n++
	}
}
