package stormgen

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"auspex/schemas"
)

// noise is the cause of what means nothing; each occasion has a number below it.
const noise = -1

// The ways in which a device is watched from outside.
const (
	agentWay = iota
	hostWay
	bmcWay
	switchWay
)

type contact struct {
	lost, told bool
	gen        int
	why        int
}

// state is how a part is.
type state struct {
	cut     int // reasons why it gives nothing: tripped, failed, pulled
	why     int // what took it down
	dark    bool
	down    bool // the operating system does not run
	gen     int  // of its boots
	expects bool // its next boot is clean
	worn    bool // fails when it has to carry more
	ways    [4]contact
	poll    float64 // phase of the collector that reads it, seconds
	skew    float64 // of its clock
}

type task struct {
	at  float64
	seq int
	do  func()
}

type queue []task

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *queue) Push(x any) { *q = append(*q, x.(task)) }

func (q *queue) Pop() any {
	old := *q
	t := old[len(old)-1]
	*q = old[:len(old)-1]
	return t
}

// world runs a plant: what fails, what follows from it, and what the sources
// make of it. Time is in seconds since the start.
type world struct {
	*plant
	rng     *rand.Rand
	now     float64
	seq     int
	tasks   queue
	st      []state
	port    []bool // by link: it is down
	why     []int  // by link: what took it down
	cutl    []int  // by link: reasons why the cable carries nothing
	hyper   hyper
	out     []said
	held    map[int][]said // by device: records that wait for contact
	log     map[logOf]float64
	cond    map[condition][]raised
	jobs    []*job
	on      map[int]*job // by server
	via     *job         // whose end is told now
	next    int          // number of the next job
	murmurs int          // occasions of noise so far
	mute    string       // a source of which nothing arrives
	cases   []*Case
	again   *replay       // where a fault is played again for Best
	below   map[int][]int // by switch: what hangs on it
}

// hyper is what differs from storm to storm.
type hyper struct {
	sure   map[string]float64 // by symptom: how much less surely it comes
	lag    map[string]float64 // by source: how much later
	blind  map[string]bool    // monitors that are not there
	inBand bool               // agents are reached over the servers' own ports
	nicBy  string             // who reports a server's end of a cable
	sev    map[string]schemas.Severity
	slow   float64 // of heat
	kW     float64 // how near the feeds are to their limit, 0..1
}

type condition struct {
	part int
	typ  string
}

type raised struct {
	source string
	cause  int
}

func newWorld(p *plant, rng *rand.Rand) *world {
	w := &world{
		plant: p, rng: rng, st: make([]state, len(p.parts)), port: make([]bool, len(p.links)),
		why: make([]int, len(p.links)), cutl: make([]int, len(p.links)),
		held: map[int][]said{}, log: map[logOf]float64{}, cond: map[condition][]raised{}, on: map[int]*job{}, below: map[int][]int{},
	}
	w.habits()
	for i := range w.st {
		w.st[i].poll = 30 * rng.Float64()
		if p.parts[i].kind == schemas.KindBMC {
			w.st[i].skew = 2 * rng.NormFloat64()
		}
	}
	return w
}

// habits draws what differs from storm to storm.
func (w *world) habits() {
	w.hyper = hyper{
		sure: map[string]float64{}, lag: map[string]float64{}, blind: map[string]bool{}, sev: map[string]schemas.Severity{},
		inBand: w.p(0.5), nicBy: schemas.SourceGNMI, slow: w.span(0.5, 1.8), kW: w.rng.Float64(),
	}
	if w.p(0.5) {
		w.hyper.nicBy = schemas.SourceKmsg
	}
}

func (w *world) p(p float64) bool { return w.rng.Float64() < p }

func (w *world) span(lo, hi float64) float64 { return lo + (hi-lo)*w.rng.Float64() }

// about is a wait around a mean, in seconds.
func (w *world) about(mean float64) float64 { return mean * (0.3 + 0.7*w.rng.ExpFloat64()) }

func (w *world) pick(list []int) int {
	if w.again != nil && has(list, w.again.root) {
		return w.again.root
	}
	return list[w.rng.IntN(len(list))]
}

// some returns the parts of a list that a chance falls on, at least one.
func (w *world) some(list []int, p float64) []int {
	var out []int
	for _, x := range list {
		if w.p(p) {
			out = append(out, x)
		}
	}
	if len(out) == 0 && len(list) > 0 {
		out = append(out, w.pick(list))
	}
	return out
}

// sees tells whether a symptom comes: each storm has its own share of what is usual.
func (w *world) sees(symptom string, p float64) bool {
	m, ok := w.hyper.sure[symptom]
	if !ok {
		m = w.span(0.5, 1.1)
		if w.again.keeps() {
			w.hyper.sure[symptom] = m
		}
	}
	return w.p(p * m)
}

// lag is how much later a source is in this storm.
func (w *world) lag(source string) float64 {
	m, ok := w.hyper.lag[source]
	if !ok {
		m = math.Exp(w.span(math.Log(0.3), math.Log(4)))
		if w.again.keeps() {
			w.hyper.lag[source] = m
		}
	}
	return m
}

// monitored tells whether a site watches for something at all.
func (w *world) monitored(source, typ string) bool {
	key := source + " " + typ
	b, ok := w.hyper.blind[key]
	if !ok {
		p := 0.06
		switch typ {
		case schemas.EventPDUBreaker, schemas.EventCRACFailure, schemas.EventPDUOverload:
			p = 0.4
		case schemas.EventHostUnreachable, schemas.EventPortDown, schemas.EventGPUXID, schemas.EventHostReboot:
			p = 0
		}
		b = w.p(p)
		if w.again.keeps() {
			w.hyper.blind[key] = b
		}
	}
	return !b
}

// after does something later.
func (w *world) after(wait float64, do func()) {
	w.seq++
	heap.Push(&w.tasks, task{w.now + max(0, wait), w.seq, do})
}

// run plays until a time.
func (w *world) run(until float64) {
	for len(w.tasks) > 0 && w.tasks[0].at <= until {
		t := heap.Pop(&w.tasks).(task)
		w.now = t.at
		t.do()
	}
}

// Power.

// live tells whether a supplier, or a supply, gives power.
func (w *world) live(i int) bool {
	return w.st[i].cut == 0 && w.fed(i)
}

// fed tells whether power comes in.
func (w *world) fed(i int) bool {
	f := w.parts[i].feeds
	return len(f) == 0 || slices.ContainsFunc(f, w.live)
}

// cut takes a supplier away, and mend gives it back.
func (w *world) cut(c, i int)  { w.shift(c, i, 1) }
func (w *world) mend(c, i int) { w.shift(c, i, -1) }

func (w *world) shift(c, i, by int) {
	before := w.live(i)
	w.st[i].cut += by
	if w.live(i) != before {
		w.flow(c, i, !before)
	}
}

// flow follows power that came or went at a part to what hangs on it.
func (w *world) flow(c, i int, on bool) {
	if w.parts[i].kind == schemas.KindPSU {
		w.powered(c, w.parts[i].dev)
		return
	}
	for _, l := range w.parts[i].loads {
		if len(w.parts[l].feeds) > 1 && slices.ContainsFunc(w.parts[l].feeds, func(f int) bool { return f != i && w.live(f) }) {
			if w.parts[l].dev == l {
				w.redundancy(c, l, on)
			}
			continue
		}
		if w.parts[l].kind == schemas.KindPSU {
			w.input(c, l, on)
		}
		if w.st[l].cut == 0 && w.parts[l].dev != l {
			w.flow(c, l, on)
		}
		if w.parts[l].dev == l {
			w.powered(c, l)
		}
	}
}

// input tells of a supply that lost its input, or has it again.
func (w *world) input(c, psu int, on bool) {
	dev := w.parts[psu].dev
	if dev < 0 {
		return
	}
	if w.parts[dev].kind == schemas.KindSwitch {
		w.redundancy(c, psu, on)
		return
	}
	w.after(w.about(1.5), func() {
		if on != w.fed(psu) {
			return
		}
		if on {
			w.clear(psu, schemas.EventPSUInputLost)
			return
		}
		if w.sees("input redfish", 0.85) {
			w.raise(c, schemas.SourceRedfish, psu, schemas.EventPSUInputLost, "PSU0003", schemas.SeverityError)
		}
		if w.sees("input ipmi", 0.8) {
			w.raise(c, schemas.SourceIPMI, psu, schemas.EventPSUInputLost, "PS Status", schemas.SeverityError)
		}
	})
}

// redundancy tells of a switch that has one supply less.
func (w *world) redundancy(c, at int, on bool) {
	sw := w.parts[at].dev
	w.after(w.about(4), func() {
		if on {
			w.clear(at, schemas.EventSwitchPSU)
		} else if w.running(sw) && w.sees("switch supply", 0.85) {
			w.raise(c, schemas.SourceGNMI, at, schemas.EventSwitchPSU, "PowerSupply", schemas.SeverityWarning)
		}
	})
}

// enough tells whether a device has the power to run: half of its supplies.
func (w *world) enough(dev int) bool {
	psus := w.of(dev, schemas.KindPSU)
	if len(psus) == 0 {
		return w.fed(dev)
	}
	n := 0
	for _, k := range psus {
		if w.live(k) {
			n++
		}
	}
	return n >= (len(psus)+1)/2
}

// standby tells whether a board controller has power.
func (w *world) standby(server int) bool {
	psus := w.of(server, schemas.KindPSU)
	if len(psus) == 0 {
		return w.fed(server)
	}
	return slices.ContainsFunc(psus, w.live)
}

// powered looks at a device's power again.
func (w *world) powered(c, dev int) {
	if dev < 0 {
		return
	}
	s := &w.st[dev]
	on := w.enough(dev)
	switch {
	case !on && !s.dark:
		s.dark = true
		w.stop(c, dev, false)
	case on && s.dark:
		s.dark = false
		w.boot(dev, w.span(90, 400))
	case on && !s.dark && w.running(dev):
		for _, k := range w.of(dev, schemas.KindPSU) {
			if w.st[k].worn && w.live(k) && slices.ContainsFunc(w.of(dev, schemas.KindPSU), func(o int) bool { return !w.live(o) }) {
				w.st[k].worn = false
				w.after(w.about(20), func() { // it cannot carry the rest alone
					w.cut(c, k)
					w.crash(c, dev, w.span(900, 2400), 0)
				})
			}
		}
	}
	if b := w.bmc(dev); b >= 0 {
		w.look(c, dev)
	}
}

// Servers and switches.

func (w *world) running(dev int) bool { return !w.st[dev].down && !w.st[dev].dark }

// stop ends what runs on a device. clean says that somebody wanted it.
func (w *world) stop(c, dev int, clean bool) {
	s := &w.st[dev]
	if s.down {
		return
	}
	s.down, s.why, s.expects = true, c, clean
	s.gen++
	if w.parts[dev].kind == schemas.KindServer {
		w.hurt(c, dev, "down")
	}
	w.cables(c, dev)
	w.look(c, dev)
	if w.parts[dev].kind == schemas.KindSwitch {
		w.lookBelow(c, dev)
	}
}

// boot starts a device after a wait.
func (w *world) boot(dev int, wait float64) {
	s := &w.st[dev]
	s.gen++
	gen := s.gen
	w.after(wait, func() {
		if s.gen != gen || !s.down || !w.enough(dev) {
			return
		}
		c := s.why
		s.down, s.dark = false, false
		if w.parts[dev].kind == schemas.KindServer {
			code, sev := "unclean", schemas.SeverityWarning
			if s.expects {
				code, sev = "clean", schemas.SeverityInfo
			}
			if s.expects || w.sees("boot", 0.95) {
				w.say(c, schemas.SourceKmsg, dev, schemas.EventHostReboot, code, sev, "")
			}
		} else if w.sees("switch boot", 0.6) {
			w.say(c, schemas.SourceGNMI, dev, schemas.EventSwitchReboot, "unplanned", schemas.SeverityError, "")
		}
		w.cables(c, dev)
		w.look(c, dev)
		if w.parts[dev].kind == schemas.KindSwitch {
			w.lookBelow(c, dev)
		}
	})
}

// crash ends a server's system, which is back after a while; 0 is never. The
// cards keep their links until it starts again or loses power.
func (w *world) crash(c, dev int, back, linger float64) {
	if !w.running(dev) {
		return
	}
	s := &w.st[dev]
	s.down, s.why, s.expects = true, c, false
	s.gen++
	gen := s.gen
	w.hurt(c, dev, "down")
	w.look(c, dev)
	w.after(linger, func() {
		if s.gen == gen && s.down {
			w.cables(c, dev)
		}
	})
	if back > 0 {
		w.after(back, func() {
			if s.gen == gen {
				w.boot(dev, 0)
			}
		})
	}
}

// Network.

// cables looks at the links of a device again.
func (w *world) cables(c, dev int) {
	for _, e := range w.ports(dev) {
		for _, l := range w.parts[e].links {
			w.cable(c, l)
		}
	}
}

func (w *world) lit(end int) bool {
	d := w.parts[end].dev
	return w.st[end].cut == 0 && (d < 0 || w.running(d) || w.parts[end].kind == schemas.KindBMC && w.standby(d))
}

func (w *world) cable(c, l int) {
	a, b := w.links[l].a, w.links[l].b
	down := w.cutl[l] > 0 || !w.lit(a) || !w.lit(b)
	if down == w.port[l] {
		return
	}
	w.port[l] = down
	if down {
		w.why[l] = c
	}
	for _, e := range []int{a, b} {
		w.end(w.why[l], l, e, down)
	}
	for _, e := range []int{a, b} {
		d, o := w.parts[e].dev, w.parts[w.peer(l, e)].dev
		if d >= 0 && w.parts[d].kind == schemas.KindServer {
			w.look(w.why[l], d)
		}
		if d >= 0 && o >= 0 && w.parts[d].kind == schemas.KindSwitch && w.parts[o].kind == schemas.KindSwitch {
			if w.rank(d) < w.rank(o) {
				w.lookBelow(w.why[l], d)
			}
			if down {
				w.session(w.why[l], d, e)
			} else {
				w.clear(d, schemas.EventBGPSessionDown)
			}
		}
	}
}

// end tells what one end of a cable sees.
func (w *world) end(c, l, e int, down bool) {
	d := w.parts[e].dev
	if d < 0 || w.parts[e].kind == schemas.KindBMC || w.mgmt(d) {
		return
	}
	w.after(w.about(0.4), func() {
		if w.port[l] != down || !w.running(d) {
			return
		}
		if !down {
			w.clear(e, schemas.EventPortDown)
			w.clear(e, schemas.EventNICDown)
			return
		}
		source, typ := schemas.SourceGNMI, schemas.EventPortDown
		if w.parts[d].kind == schemas.KindServer {
			source = w.hyper.nicBy
			if source == schemas.SourceKmsg {
				typ = schemas.EventNICDown
			}
		}
		if w.sees("port "+source, 0.95) {
			w.raise(c, source, e, typ, "", schemas.SeverityError)
		}
	})
}

func (w *world) session(c, dev, port int) {
	w.after(w.about(2), func() {
		if w.running(dev) && w.sees("session", 0.7) {
			w.raise(c, schemas.SourceGNMI, dev, schemas.EventBGPSessionDown, "", schemas.SeverityError, "port", w.parts[port].id)
		}
	})
}

// joined tells whether a switch can pass anything on.
func (w *world) joined(sw int) bool {
	if !w.running(sw) {
		return false
	}
	ups := 0
	for _, e := range w.ports(sw) {
		for _, l := range w.parts[e].links {
			o := w.parts[w.peer(l, e)].dev
			if o < 0 || w.parts[o].kind != schemas.KindSwitch || w.rank(o) <= w.rank(sw) {
				continue
			}
			if ups++; !w.port[l] {
				return true
			}
		}
	}
	return ups == 0
}

// over tells whether a part is reached over one of its links; without any in the
// inventory it is.
func (w *world) over(e int) (known, ok bool) {
	for _, l := range w.parts[e].links {
		o := w.parts[w.peer(l, e)].dev
		known = true
		if !w.port[l] && (o < 0 || w.joined(o)) {
			return true, true
		}
	}
	return known, false
}

// reach tells whether an agent on a server can be heard.
func (w *world) reach(server int) bool {
	if b := w.bmc(server); !w.hyper.inBand && b >= 0 {
		if known, ok := w.over(b); known {
			return ok
		}
	}
	any := false
	for _, e := range w.ports(server) {
		known, ok := w.over(e)
		if ok {
			return true
		}
		any = any || known
	}
	return !any
}

func (w *world) reachBMC(server int) bool {
	b := w.bmc(server)
	if b < 0 || !w.standby(server) || w.st[b].cut > 0 {
		return false
	}
	known, ok := w.over(b)
	return ok || !known
}

// reachSwitch tells whether a switch's own reports arrive.
// look checks what collectors can reach of a device.
func (w *world) look(c, dev int) {
	switch w.parts[dev].kind {
	case schemas.KindServer:
		ok := w.reach(dev) && w.running(dev)
		w.way(c, dev, agentWay, ok && w.st[dev].cut == 0)
		w.way(c, dev, hostWay, ok)
		if w.bmc(dev) >= 0 {
			w.way(c, dev, bmcWay, w.reachBMC(dev))
		}
	case schemas.KindSwitch:
		w.way(c, dev, switchWay, w.running(dev))
	}
}

// lookBelow checks all that hangs on a switch.
func (w *world) lookBelow(c, sw int) {
	list, ok := w.below[sw]
	if !ok {
		seen := map[int]bool{sw: true}
		for todo := []int{sw}; len(todo) > 0; todo = todo[1:] {
			for _, e := range w.ports(todo[0]) {
				for _, l := range w.parts[e].links {
					o := w.parts[w.peer(l, e)].dev
					if o < 0 || seen[o] {
						continue
					}
					if w.parts[o].kind == schemas.KindServer {
						seen[o] = true
						list = append(list, o)
					} else if w.rank(o) < w.rank(todo[0]) {
						seen[o] = true
						todo = append(todo, o)
					}
				}
			}
		}
		w.below[sw] = list
	}
	for _, d := range list {
		w.look(c, d)
	}
}

// way follows contact with a device; loss is told when it has lasted.
func (w *world) way(c, dev, kind int, ok bool) {
	x := &w.st[dev].ways[kind]
	if x.lost == !ok {
		return
	}
	x.lost = !ok
	x.gen++
	gen := x.gen
	if ok {
		w.flush(dev, kind == bmcWay)
	} else {
		x.why = c
	}
	lag := w.lag(schemas.SourceCollector)
	at, typ := dev, ""
	var wait float64
	sev := schemas.SeverityError
	switch kind {
	case agentWay:
		typ, wait = schemas.EventAgentUnreachable, 8+w.about(7)*lag
	case hostWay:
		typ, wait, sev = schemas.EventHostUnreachable, 10+w.about(8)*lag, w.severity("host", schemas.SeverityCritical, schemas.SeverityError)
	case bmcWay:
		at, typ, wait = w.bmc(dev), schemas.EventBMCUnreachable, 12+w.about(15)*lag
	case switchWay:
		typ, wait, sev = schemas.EventSwitchUnreachable, 10+w.about(10)*lag, schemas.SeverityCritical
	}
	if ok {
		wait = w.about(10)
	}
	w.after(wait, func() {
		if x.gen != gen {
			return
		}
		switch {
		case !ok && !x.told && w.sees("contact "+typ, 1):
			x.told = true
			w.raise(x.why, schemas.SourceCollector, at, typ, "", sev)
		case ok && x.told:
			x.told = false
			w.clear(at, typ)
		}
	})
}

// severity is one of several that a site gives to something.
func (w *world) severity(what string, of ...schemas.Severity) schemas.Severity {
	s, ok := w.hyper.sev[what]
	if !ok {
		s = of[w.rng.IntN(len(of))]
		if w.again.keeps() {
			w.hyper.sev[what] = s
		}
	}
	return s
}
