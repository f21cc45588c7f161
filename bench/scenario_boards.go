package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"auspex/collectors"
	"auspex/internal/bmc"
	"auspex/internal/bus"
	"auspex/internal/bus/spool"
	"auspex/internal/run"
	"auspex/internal/store/cursors"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// boardFleet is board controllers that a peer plays.
type boardFleet struct {
	peer      *Peer
	addresses []string
}

func (b *bencher) startBoards(ctx context.Context, n int) (*boardFleet, error) {
	peer, err := StartPeer(ctx, PeerBoards, BoardsOptions{Boards: n}, b.err)
	if err != nil {
		return nil, err
	}
	var hello BoardsReport
	if err := peer.Receive(&hello); err != nil {
		return nil, errors.Join(err, peer.Close())
	}
	return &boardFleet{peer, hello.Addresses}, nil
}

// tell gives an order and returns what has been so far.
func (f *boardFleet) tell(o BoardsOrder) (r BoardsReport, err error) {
	if err = f.peer.Send(o); err == nil {
		err = f.peer.Receive(&r)
	}
	return r, err
}

// resources are the boards as an inventory has them.
func (f *boardFleet) resources() (out []schemas.Resource) {
	for i, addr := range f.addresses {
		out = append(out, schemas.Resource{ID: Server(i), Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
			schemas.AttrIPMIIP: addr, schemas.AttrCredential: boardUser,
		})})
	}
	return out
}

// oneUser is the secret of all boards.
type oneUser struct{}

// Secret implements collectors.Secrets.
func (oneUser) Secret(context.Context, string) (user, password string, err error) {
	return boardUser, boardPassword, nil
}

// desk is where collectors of boards hand in what they read: the bus in their settings and the gate, whose doors can be shut.
type desk struct {
	gate  *bmc.Gate
	doors []door
	every time.Duration
	away  atomic.Bool // the bus takes nothing

	mu     sync.Mutex
	boards map[string]*seat
	polls  int
	delays []time.Duration
	counts bool            // delays are kept
	events map[string]bool // ids
	again  int             // events that had come before
	odd    error           // the first reading that was not whole
}

// door is the way in of some boards.
type door struct {
	sync.RWMutex // held for writing while nobody is let in
	shut         bool
}

func (d *door) close() {
	if !d.shut {
		d.Lock()
	}
	d.shut = true
}

func (d *door) open() {
	if d.shut {
		d.Unlock()
	}
	d.shut = false
}

// seat is what is known of one board.
type seat struct {
	door         int
	kept         bool // its delays are
	asking       bool
	began, prior time.Time // of this poll and of the one before
	whole        int       // readings of all sensors
}

// newDesk makes a desk for boards, so many of them behind each door.
func newDesk(boards []schemas.Resource, behind int, every time.Duration) *desk {
	d := &desk{gate: bmc.NewGate(), every: every, boards: make(map[string]*seat, len(boards)), events: map[string]bool{}}
	d.doors = make([]door, (len(boards)+behind-1)/behind)
	for i, b := range boards {
		d.boards[b.ID] = &seat{door: i / behind, kept: true}
	}
	return d
}

// open opens all doors.
func (d *desk) open() {
	for i := range d.doors {
		d.doors[i].open()
	}
}

// Acquire implements collectors.Gate.
func (d *desk) Acquire(ctx context.Context, server string) (release func(), err error) {
	s := d.boards[server]
	in := &d.doors[s.door]
	in.RLock()
	leave, err := d.gate.Acquire(ctx, server)
	if err != nil {
		in.RUnlock()
		return nil, err
	}
	d.mu.Lock()
	if !s.asking {
		s.asking, s.prior, s.began = true, s.began, time.Now()
	}
	d.mu.Unlock()
	return func() {
		leave()
		in.RUnlock()
	}, nil
}

var errBusAway = errors.New("the bus is away")

// Publish implements collectors.Publisher.
func (d *desk) Publish(_ context.Context, msgs ...bus.Message) error {
	if d.away.Load() {
		return errBusAway
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range msgs {
		var b auspexv1.Batch
		if err := b.UnmarshalVT(m.Value); err != nil {
			return err
		}
		for _, e := range b.GetEvents() {
			if d.events[e.GetId()] {
				d.again++
			}
			d.events[e.GetId()] = true
		}
		read := measured(b.GetSamples())
		if read == 0 {
			continue
		}
		d.polls++
		s := d.boards[b.GetDevice()]
		switch { // beside the sensors there is the power state, and at times one more about the controller
		case read > boardReadings:
			s.whole++
		case read > 2 && d.odd == nil:
			d.odd = fmt.Errorf("%s gave %d samples in one reading", b.GetDevice(), read)
		}
		if d.counts && s.kept && !s.prior.IsZero() {
			d.delays = append(d.delays, max(0, s.began.Sub(s.prior)-d.every)+now.Sub(s.began))
		}
		s.asking = false
	}
	return nil
}

// measured counts the samples that are readings: thresholds, and what a board is made of, come at times.
func measured(c *auspexv1.SampleColumns) (n int) {
	if c == nil {
		return 0
	}
	for _, ref := range c.GetRef() {
		if name := c.Symbols[c.Series[ref].Metric]; !strings.HasSuffix(name, "_threshold") && !strings.HasSuffix(name, "_info") {
			n++
		}
	}
	return n
}

func (d *desk) count() (polls, events int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.polls, len(d.events)
}

// whole counts the readings of all sensors, and the boards that have given one.
func (d *desk) whole() (readings, boards int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.boards {
		readings += s.whole
		if s.whole > 0 {
			boards++
		}
	}
	return readings, boards
}

// timing keeps the delays from now on, or returns those that were kept and stops.
func (d *desk) timing(on bool) (kept []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept, d.delays, d.counts = d.delays, nil, on
	return kept
}

// boardReader is a product that reads boards.
type boardReader struct {
	*live
	state   *live
	desk    *desk
	product *Product
}

// reading says how boards are read.
type reading struct {
	every  time.Duration // as in the settings
	behind int           // how many of them share a door; 0 is all
	quiet  bool          // what happens to boards is not said
	spool  bool          // events go through one
}

// readBoards starts to read boards, and returns when each was read once.
func (b *bencher) readBoards(ctx context.Context, fleet *boardFleet, o reading, set ...string) (r *boardReader, err error) {
	s, err := b.product(append(set, "collect.start_spread=0s")...)
	if err != nil {
		return nil, err
	}
	boards := fleet.resources()
	if o.behind == 0 {
		o.behind = len(boards)
	}
	r = &boardReader{desk: newDesk(boards, o.behind, o.every), product: s}
	if r.state, err = b.start(ctx, s, s.Components("state")...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	settings := collectors.Settings{
		Log: s.Log, Now: time.Now, Cursors: cursors.New(s.Parts().DB), Secrets: oneUser{}, Metrics: s.Metrics, Gate: r.desk,
	}
	if o.quiet {
		settings.Log = slog.New(slog.DiscardHandler)
	}
	var out collectors.Publisher = r.desk
	var parts []run.Component
	if o.spool {
		events, err := spool.Open(ctx, b.path("spool.db"), schemas.TopicEvents, spool.DefaultConfig(), r.desk, settings.Log, s.Metrics)
		if err != nil {
			return r, err
		}
		out = events
		parts = append(parts, run.Func("spool", func(ctx context.Context, ready func()) error {
			return errors.Join(events.Run(ctx, ready), events.Close())
		}))
	}
	runner := collectors.NewRunner(s.Collect, s.Collectors, out, settings)
	if err := runner.Reconcile(boards); err != nil {
		return r, err
	}
	if r.live, err = b.start(ctx, s, append(parts, runner)...); err != nil {
		return r, err
	}
	read := 0
	err = r.await(ctx, boardPatience, "the first reading of all boards", func() bool { _, read = r.desk.whole(); return read == len(boards) })
	if err != nil {
		err = fmt.Errorf("%w (%d of %d)", err, read, len(boards))
	}
	return r, err
}

func (r *boardReader) stop() (err error) {
	r.desk.open() // or nobody would come to an end
	if r.live != nil {
		err = r.live.stop()
	}
	return errors.Join(err, r.state.stop())
}

// told waits until all records of the event logs are there, and fails where there are others.
func (r *boardReader) told(ctx context.Context, fleet *boardFleet) (records int64, err error) {
	report, err := fleet.tell(BoardsOrder{})
	if err != nil {
		return 0, err
	}
	got := 0
	err = r.await(ctx, patience, "records of the event logs", func() bool { _, got = r.desk.count(); return int64(got) >= report.Records })
	if err != nil || int64(got) != report.Records {
		err = errors.Join(err, fmt.Errorf("%d records were read, the boards have written %d", got, report.Records))
	}
	return report.Records, err
}

// complete fails where a reading was not whole, or failed.
func (r *boardReader) complete() error {
	err := r.odd()
	if n := r.failed(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%v readings failed", n))
	}
	return err
}

// odd is the first reading that was not whole.
func (r *boardReader) odd() error {
	r.desk.mu.Lock()
	defer r.desk.mu.Unlock()
	return r.desk.odd
}

// failed counts the readings that have ended with an error.
func (r *boardReader) failed() float64 {
	return total(r.product.Metrics, "auspex_collectors_errors_total", "", "")
}

// boardPatience bounds the first reading of many boards.
const boardPatience = 4 * time.Minute

const pollRounds = 4

// ipmiPoll reads 1,000 board controllers more often than anybody should, and in turn has a plain loop over the library's
// client send the same commands to them over sessions of its own. Every reading must be whole, and every record of the
// event logs must come once.
func (b *bencher) ipmiPoll(ctx context.Context) (res Result, err error) {
	n := cmp.Or(b.asked, 1000)
	fleet, err := b.startBoards(ctx, n)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, fleet.peer.Close()) }()
	reader, err := b.readBoards(ctx, fleet, reading{every: 2 * time.Second}, "collectors.ipmi={interval: 2s, sensor_interval: 2s, jitter: 0}")
	if err != nil {
		return res, err
	}
	d := reader.desk
	defer func() { err = errors.Join(err, reader.stop()) }()
	rss := peakRSS("self")
	d.doors[0].close()
	plain, err := fleet.plainClients(ctx)
	if err != nil {
		return res, err
	}
	defer plain.close()
	first, _ := d.count()
	var ours, theirs span
	meter := StartMeter()
	for round := range pollRounds {
		if _, err := fleet.tell(BoardsOrder{Records: round % 2}); err != nil { // half of the rounds have something in the logs
			return res, err
		}
		until, polls := 0, 0
		until, _ = d.count()
		until += b.n / pollRounds
		err := ours.during(fleet, func() error {
			d.doors[0].open()
			defer d.doors[0].close()
			return reader.await(ctx, patience, "readings", func() bool { polls, _ = d.count(); return polls >= until })
		})
		if err == nil {
			err = theirs.during(fleet, func() error { return plain.poll(ctx, b.n/pollRounds) })
		}
		if err != nil {
			return res, err
		}
	}
	polls, _ := d.count()
	res = meter.Stop(b.name, "polls", int64(polls-first))
	res.CPUSeconds, res.Seconds, res.MaxRSS = round(ours.cpu.Seconds()), round(ours.wall.Seconds()), rss
	res.PerSecond, res.PerCPUSecond = round(float64(res.N)/ours.wall.Seconds()), round(float64(res.N)/ours.cpu.Seconds())
	d.open()
	records, err := reader.told(ctx, fleet)
	res.Detail = map[string]any{
		"boards": n, "commands": ours.commands, "us_per_command": round(ours.each()), "plain_us_per_command": round(theirs.each()),
		"plain_commands": theirs.commands, "ratio": round(ours.each() / theirs.each()), "log_records": records, "rounds": pollRounds,
	}
	return res, errors.Join(err, reader.complete())
}

// span adds up what commands cost us.
type span struct {
	cpu, wall time.Duration
	commands  int64
}

func (s *span) during(fleet *boardFleet, f func() error) error {
	before, err := fleet.tell(BoardsOrder{})
	if err != nil {
		return err
	}
	cpu, began := selfCPU(), time.Now()
	if err := f(); err != nil {
		return err
	}
	s.cpu, s.wall = s.cpu+selfCPU()-cpu, s.wall+time.Since(began)
	after, err := fleet.tell(BoardsOrder{})
	s.commands += after.Commands - before.Commands
	return err
}

// each is what a command costs in microseconds of processor time.
func (s *span) each() float64 {
	return float64(s.cpu.Nanoseconds()) / 1e3 / max(float64(s.commands), 1)
}

// plainClients are sessions of the library's client, as it comes.
type plainClients []*client.Client

// plainWorkers is how many boards a plain loop asks at a time.
const plainWorkers = 64

func (f *boardFleet) plainClients(ctx context.Context) (plainClients, error) {
	out := make(plainClients, len(f.addresses))
	err := atATime(len(out), func(i int) error {
		host, port, err := net.SplitHostPort(f.addresses[i])
		if err != nil {
			return err
		}
		p, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		if out[i], err = client.NewClient(host, p, boardUser, boardPassword); err != nil {
			return err
		}
		const suite = 17 // what the product agrees upon with these boards
		return out[i].WithCipherSuiteID(types.CipherSuiteID(suite)).WithTimeout(2 * time.Second).WithRetry(2).Connect(ctx)
	})
	if err != nil {
		out.close()
	}
	return out, err
}

// atATime calls f for each of n things, several at a time, and returns the first error.
func atATime(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, 1)
	for range plainWorkers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					select {
					case errs <- err:
					default:
					}
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// poll asks what the product asks a board, and has asked n times.
func (p plainClients) poll(ctx context.Context, n int) error {
	return atATime(n, func(i int) error {
		c := p[i%len(p)]
		if _, err := c.GetSELInfo(ctx); err != nil {
			return err
		}
		if _, err := c.GetChassisStatus(ctx); err != nil {
			return err
		}
		for s := range boardReadings {
			if _, err := c.GetSensorReading(ctx, uint8(s+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p plainClients) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = atATime(len(p), func(i int) error {
		if p[i] == nil {
			return nil
		}
		return p[i].Close(ctx)
	})
}

// ipmiFleet reads 10,000 boards at the intervals of a large site for a minute: event log and power state each 30 s, sensors
// each 60 s. What is measured begins when each board was read once. The boards are another process: all memory is that of the
// process which reads them, the program itself and what the scenario notes of each board included.
func (b *bencher) ipmiFleet(ctx context.Context) (res Result, err error) {
	fleet, err := b.startBoards(ctx, b.n)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, fleet.peer.Close()) }()
	const span = 60 * time.Second
	walk, empty := StartMeter(), residentNow()
	reader, err := b.readBoards(ctx, fleet, reading{every: span / 2, quiet: true}, "collectors.ipmi={interval: 30s, sensor_interval: 60s, timeout: 5s}")
	if err != nil {
		return res, err
	}
	d := reader.desk
	defer func() { _ = reader.stop() }() // so many sessions may take longer to end than a process has: all was measured before
	first := walk.Stop(b.name, "boards", int64(b.n))
	before, err := fleet.tell(BoardsOrder{})
	if err != nil {
		return res, err
	}
	polls, _ := d.count()
	readings, _ := d.whole()
	failed := reader.failed() // a machine that others use may be late in the rush of the first reading
	meter := StartMeter()
	if err := run.Sleep(ctx, span); err != nil {
		return res, err
	}
	pollsThen, _ := d.count()
	readingsThen, _ := d.whole()
	res = meter.Stop(b.name, "polls", int64(pollsThen-polls))
	after, err := fleet.tell(BoardsOrder{})
	if err != nil {
		return res, err
	}
	commands := after.Commands - before.Commands
	resident := residentNow()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	records, err := reader.told(ctx, fleet)
	res.Detail = map[string]any{
		"rss_before_bytes": empty, "heap_bytes": memory.HeapAlloc, "stack_bytes": memory.StackInuse,
		"boards": b.n, "cores": round(res.CPUSeconds / res.Seconds), "rss_bytes": resident, "commands": commands,
		"us_per_command": round(1e6 * res.CPUSeconds / max(float64(commands), 1)), "readings_of_sensors": readingsThen - readings,
		"first_walk_s": first.Seconds, "first_walk_cpu_s": first.CPUSeconds, "log_records": records,
		"first_walk_failed": failed,
	}
	if n := reader.failed() - failed; n > 0 {
		err = errors.Join(err, fmt.Errorf("%v readings failed", n))
	}
	if least := b.n * 17 / 10; pollsThen-polls < least { // two each, less what jitter moves out of the minute
		err = errors.Join(err, fmt.Errorf("%d polls in a minute, want %d: this machine is too slow for %d boards", pollsThen-polls, least, b.n))
	}
	return res, errors.Join(err, reader.odd())
}

// How long a healthy board takes for an answer where some are ill, and how often boards are read there.
const (
	sickDelay  = 3 * time.Millisecond
	sickEvery  = 5 * time.Second
	sickRounds = 3
)

// ipmiSick reads two fleets in turn, of one process: one whose boards are all well, and one of which a tenth does not
// answer and a tenth takes ten times as long. What a poll of a board that is well takes, from when it was due to when its
// samples are on the bus, is compared; n is how many seconds of each fleet are measured a round.
func (b *bencher) ipmiSick(ctx context.Context) (res Result, err error) {
	n := cmp.Or(b.asked, 1000)
	fleet, err := b.startBoards(ctx, 2*n)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, fleet.peer.Close()) }()
	reader, err := b.readBoards(
		ctx, fleet, reading{every: sickEvery, behind: n, quiet: true}, "collectors.ipmi={interval: 5s, sensor_interval: 5s, jitter: 0}",
	)
	if err != nil {
		return res, err
	}
	d := reader.desk
	defer func() { err = errors.Join(err, reader.stop()) }()
	for i := range n / 10 * 2 {
		d.mu.Lock()
		d.boards[Server(n+i)].kept = false
		d.mu.Unlock()
	}
	d.doors[0].close()
	d.doors[1].close()
	if _, err := fleet.tell(BoardsOrder{Behave: true, Delay: sickDelay, From: n, Mute: n / 10, Slow: n / 10}); err != nil {
		return res, err
	}
	var took [2][]time.Duration
	meter := StartMeter()
	for range sickRounds {
		for which := range took {
			d.doors[which].open()
			// All are late at first, whom nobody has read meanwhile.
			if err := run.Sleep(ctx, 2*sickEvery); err != nil {
				return res, err
			}
			d.timing(true)
			if err := run.Sleep(ctx, time.Duration(b.n)*time.Second); err != nil {
				return res, err
			}
			took[which] = append(took[which], d.timing(false)...)
			d.doors[which].close()
		}
	}
	res = meter.Stop(b.name, "polls of boards that are well", int64(len(took[0])+len(took[1])))
	res.Latencies("a poll of a board that is well, from when it was due, beside some that are not", took[1])
	well, sick := Quantile(took[0], .99), Quantile(took[1], .99)
	lost := total(reader.product.Metrics, "auspex_collectors_errors_total", "kind", "timeout")
	res.Detail = map[string]any{
		"boards": n, "dead": n / 10, "slow": n / 10, "polls_without": len(took[0]), "polls_with": len(took[1]),
		"p50_without_ms": *ms(Quantile(took[0], .5)), "p99_without_ms": *ms(well), "ratio": round(float64(sick) / float64(well)),
		"answers_missed": lost,
	}
	if least := (b.n/int(sickEvery/time.Second) - 1) * n * 8 / 10 * sickRounds; len(took[1]) < least {
		err = fmt.Errorf("%d polls of boards that are well, want %d", len(took[1]), least)
	}
	if lost == 0 {
		err = errors.Join(err, errors.New("nobody has missed the boards that do not answer"))
	}
	return res, errors.Join(err, reader.odd())
}

// busAway reads 100 boards each second and takes the bus away for n seconds, while their event logs go on. Of their
// records none may be lost or be told twice; of their samples those that the bus did not take are counted.
func (b *bencher) busAway(ctx context.Context) (res Result, err error) {
	n := cmp.Or(b.asked, 100)
	fleet, err := b.startBoards(ctx, n)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, fleet.peer.Close()) }()
	reader, err := b.readBoards(
		ctx, fleet, reading{every: time.Second, quiet: true, spool: true}, "collectors.ipmi={interval: 1s, sensor_interval: 1s, jitter: 0}",
	)
	if err != nil {
		return res, err
	}
	d := reader.desk
	defer func() { err = errors.Join(err, reader.stop()) }()
	samples := func() (taken, dropped float64) {
		return total(reader.product.Metrics, "auspex_collectors_samples_total", "", ""), total(reader.product.Metrics, "auspex_collectors_samples_dropped_total", "", "")
	}
	takenBefore, _ := samples()
	before, _ := d.count()
	_, eventsBefore := d.count()
	meter := StartMeter()
	d.away.Store(true)
	for range b.n {
		if _, err := fleet.tell(BoardsOrder{Records: 1}); err != nil {
			return res, err
		}
		if err := run.Sleep(ctx, time.Second); err != nil {
			return res, err
		}
	}
	_, eventsAway := d.count()
	waiting := gauge(reader.product.Metrics, "auspex_bus_spool_messages")
	d.away.Store(false)
	back := time.Now()
	records, err := reader.told(ctx, fleet)
	caught := time.Since(back)
	res = meter.Stop(b.name, "seconds without a bus", int64(b.n))
	if err == nil {
		polls := 0
		err = reader.await(ctx, patience, "samples after the bus was back", func() bool { polls, _ = d.count(); return polls >= before+n })
	}
	taken, dropped := samples()
	res.Detail = map[string]any{
		"boards": n, "log_records": records, "log_records_meanwhile": records - int64(eventsBefore), "events_lost": 0, "events_again": d.again,
		"messages_on_disk": waiting, "all_events_after_ms": *ms(caught), "samples_dropped": dropped, "samples_taken": taken - takenBefore,
	}
	switch {
	case eventsAway != eventsBefore:
		err = errors.Join(err, fmt.Errorf("%d events came over a bus that was away", eventsAway-eventsBefore))
	case waiting == 0:
		err = errors.Join(err, errors.New("no event waited on the disk"))
	case d.again > 0:
		err = errors.Join(err, fmt.Errorf("%d events came twice", d.again))
	case dropped == 0:
		err = errors.Join(err, errors.New("samples that no bus took are counted nowhere"))
	}
	return res, errors.Join(err, reader.complete())
}

// residentNow is the resident memory of this process, in bytes (proc(5), statm).
func residentNow() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	_, _ = fmt.Sscan(string(b), &size, &resident)
	return resident * int64(os.Getpagesize())
}
