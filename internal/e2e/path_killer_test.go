package e2e

import (
	"bufio"
	endian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"auspex/schemas"
)

// killer stands between the product and PostgreSQL and reads what passes (PostgreSQL, "Frontend/Backend Protocol",
// version 3). At each write of the path it kills the product twice: when it is to be committed and PostgreSQL is not told,
// and the next time when it is committed and the product is not told.
type killer struct {
	to  string // PostgreSQL
	at  net.Listener
	wg  sync.WaitGroup
	end chan struct{}

	mu     sync.Mutex
	victim *product       // nil where nobody is to be killed
	dead   *product       // the last that was
	times  map[string]int // by write, how often the product was killed at it
	most   int
	kills  int
	over   map[string]string // incidents and actions that have ended: how
	again  []string          // what went on after its end
}

// errKilled ends a connection of a product that was killed.
var errKilled = errors.New("the product was killed")

// lurk listens for products whose store is at a DSN.
func lurk(t *testing.T, dsn string, most int) *killer {
	t.Helper()
	var lc net.ListenConfig
	at, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{to: net.JoinHostPort(word(dsn, "host"), word(dsn, "port")), at: at, end: make(chan struct{}), times: map[string]int{}, over: map[string]string{}, most: most}
	k.wg.Go(func() {
		for {
			client, err := at.Accept()
			if err != nil {
				return
			}
			k.wg.Go(func() { _ = k.pass(client) }) // the product tells of a connection that breaks
		}
	})
	t.Cleanup(func() {
		close(k.end)
		_ = at.Close()
		k.wg.Wait()
	})
	return k
}

// word is the value of a keyword of a DSN.
func word(dsn, key string) string {
	for field := range strings.FieldsSeq(dsn) {
		if name, value, _ := strings.Cut(field, "="); name == key {
			return value
		}
	}
	return ""
}

// dsn leads to PostgreSQL by the killer.
func (k *killer) dsn(of string) string {
	_, port, _ := net.SplitHostPort(k.at.Addr().String())
	return strings.Replace(of, "port="+word(of, "port"), "port="+port, 1)
}

// hunts names who is killed from now on, or nobody.
func (k *killer) hunts(p *product) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.victim = p
}

// count is how often somebody was killed.
func (k *killer) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kills
}

// killed reports whether a product was killed here.
func (k *killer) killed(p *product) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead == p
}

// unsure is a write after which the product is not killed. The intent to take the power away stands then, and nothing tells
// that it was not sent: that is not done again, but given to a person, and the path would end there.
const unsure = "insert control_audit intend power_cycle running"

// commits has a transaction committed, or the product killed before or after that.
func (k *killer) commits(writes []written, commit func() error) error {
	write := signature(writes)
	k.mu.Lock()
	n := k.times[write]
	if k.victim == nil || write == "" || n > 1 || k.kills >= k.most || n == 1 && strings.Contains(write, unsure) {
		k.mu.Unlock()
		if err := commit(); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.stands(writes)
		return nil
	}
	defer k.mu.Unlock()
	if n == 1 {
		if err := commit(); err != nil {
			return err
		}
		k.stands(writes)
	}
	k.victim.kill()
	k.dead, k.victim = k.victim, nil
	k.times[write]++
	k.kills++
	return errKilled
}

// ends are the states in which nothing more happens to an incident or an action.
var ends = []string{
	"closed", "merged", schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused,
}

// stands notes what was committed. What has ended is not to go on; k.mu is held.
func (k *killer) stands(writes []written) {
	for _, w := range writes {
		if w.record == "" {
			continue
		}
		if was := k.over[w.record]; was != "" && was != w.state {
			k.again = append(k.again, w.record+" was "+was+" and became "+w.state)
		}
		if slices.Contains(ends, w.state) {
			k.over[w.record] = w.state
		}
	}
}

// wire is one connection of the product.
type wire struct {
	k              *killer
	client, server *bufio.ReadWriter
	texts          map[string]string // of prepared statements
	status         byte              // of the last ReadyForQuery
	writes         []written         // of the transaction so far
}

func (k *killer) pass(client net.Conn) error {
	var d net.Dialer
	server, err := d.Dial("tcp", k.to) //nolint:noctx // it is beside us
	if err != nil {
		return errors.Join(err, client.Close())
	}
	both := func() { _, _ = client.Close(), server.Close() }
	done := make(chan struct{})
	defer close(done)
	defer both()
	k.wg.Go(func() {
		select {
		case <-k.end:
			both()
		case <-done:
		}
	})
	buffered := func(c net.Conn) *bufio.ReadWriter { return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)) }
	w := &wire{k: k, client: buffered(client), server: buffered(server), texts: map[string]string{}}
	if err := w.greet(); err != nil {
		return err
	}
	for {
		if err := w.turn(); err != nil {
			return err
		}
	}
}

// greet passes on how a connection begins: one that is trusted, and is not encrypted.
func (w *wire) greet() error {
	var size [4]byte
	if _, err := io.ReadFull(w.client, size[:]); err != nil {
		return err
	}
	body := make([]byte, endian.BigEndian.Uint32(size[:])-4)
	if _, err := io.ReadFull(w.client, body); err != nil {
		return err
	}
	answer, _, err := w.ask(append(size[:], body...))
	if err != nil {
		return err
	}
	return w.answer(answer)
}

// message is one of the protocol with its kind and size.
type message []byte

func (m message) kind() byte   { return m[0] }
func (m message) body() []byte { return m[5:] }

func readMessage(r io.Reader) (message, error) {
	m := make(message, 5)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	m = append(m, make([]byte, endian.BigEndian.Uint32(m[1:])-4)...)
	_, err := io.ReadFull(r, m[5:])
	return m, err
}

// query is a message that has a text executed.
func query(text string) message {
	m := append(message{'Q', 0, 0, 0, 0}, text+"\x00"...)
	endian.BigEndian.PutUint32(m[1:], uint32(len(m)-1)) //nolint:gosec // it is short
	return m
}

// ask sends something to PostgreSQL and reads its answer; changed is that rows were.
func (w *wire) ask(asked []byte) (answer []byte, changed bool, err error) {
	if _, err := w.server.Write(asked); err != nil {
		return nil, false, err
	}
	if err := w.server.Flush(); err != nil {
		return nil, false, err
	}
	for {
		m, err := readMessage(w.server)
		if err != nil {
			return nil, false, errors.Join(w.answer(answer), err) // why it goes
		}
		answer = append(answer, m...)
		switch m.kind() {
		case 'C': // CommandComplete: its tag ends with the number of rows
			tag := strings.Fields(strings.TrimRight(string(m.body()), "\x00"))
			n, err := strconv.Atoi(tag[len(tag)-1])
			changed = changed || err == nil && n > 0
		case 'Z': // ReadyForQuery
			w.status = m.body()[0]
			return answer, changed, nil
		}
	}
}

// answer passes on what PostgreSQL said.
func (w *wire) answer(answer []byte) error {
	if _, err := w.client.Write(answer); err != nil {
		return err
	}
	return w.client.Flush()
}

// turn passes on one request and its answer. What is written outside of a transaction is put into one, so that it is known
// what it has changed before that is committed.
func (w *wire) turn() error {
	asked, text, writes, err := w.request()
	if err != nil {
		return err
	}
	var answer []byte
	if strings.EqualFold(text, "commit") {
		all := w.writes
		w.writes = nil
		err = w.k.commits(all, func() error {
			answer, _, err = w.ask(asked)
			return err
		})
		if err != nil {
			return err
		}
		return w.answer(answer)
	}
	alone := w.status == 'I' && len(writes) > 0
	if alone {
		if _, _, err := w.ask(query("begin")); err != nil {
			return err
		}
	}
	answer, changed, err := w.ask(asked)
	if err != nil {
		return err
	}
	if !changed {
		writes = nil
	}
	switch {
	case alone:
		err = w.k.commits(writes, func() error {
			_, _, err := w.ask(query("commit")) // a rollback where it was refused
			return err
		})
		if err != nil {
			return err
		}
		answer[len(answer)-1] = w.status // of ReadyForQuery, which ends it
	case w.status == 'T':
		w.writes = append(w.writes, writes...)
	default:
		w.writes = nil
	}
	return w.answer(answer)
}

// request reads what the product asks at once; text is that of a simple query.
func (w *wire) request() (asked []byte, text string, writes []written, err error) {
	for {
		m, err := readMessage(w.client)
		if err != nil {
			return nil, "", nil, err
		}
		asked = append(asked, m...)
		f := fields{m.body()}
		switch m.kind() {
		case 'P': // Parse
			name := f.text()
			w.texts[name] = f.text()
		case 'B': // Bind
			f.text() // the portal
			text := w.texts[f.text()]
			for range f.number() {
				f.number() // formats; a text is the same in both
			}
			args := make([]string, f.number())
			for i := range args {
				args[i] = f.value()
			}
			writes = append(writes, described(text, args)...)
		case 'Q':
			text := f.text()
			return asked, strings.TrimSpace(text), described(text, nil), nil
		case 'S': // Sync
			return asked, "", writes, nil
		case 'X': // Terminate
			return nil, "", nil, io.EOF
		}
	}
}

// fields reads the body of a message.
type fields struct{ rest []byte }

func (f *fields) text() string {
	text, rest, _ := strings.Cut(string(f.rest), "\x00")
	f.rest = []byte(rest)
	return text
}

func (f *fields) number() int {
	n := int(endian.BigEndian.Uint16(f.rest))
	f.rest = f.rest[2:]
	return n
}

func (f *fields) value() string {
	n := int32(endian.BigEndian.Uint32(f.rest)) //nolint:gosec // -1 is NULL
	f.rest = f.rest[4:]
	if n < 0 {
		return ""
	}
	v := string(f.rest[:n])
	f.rest = f.rest[n:]
	return v
}

// pathTables are the tables of the path, and the columns whose values tell one write of a table from another. Leases,
// how far streams are read and what is told of what happened are not among them.
var pathTables = map[string][]string{
	"servers": {"status"}, "gpus": {"status"}, "allocations": {"status"}, "allocation_claims": {"state"}, "workflows": {"status", "steps"},
	"control_cases": {"state"}, "control_actions": {"state"}, "control_intents": {"verb"}, "requests": {"taken"}, "control_audit": {"verb", "detail"},
	"discoveries": {"status"}, "discovery_finds": {"result"}, "inventory_resources": {"kind"}, "inventory_imports": nil, "inventory_workloads": nil,
	"records": {"kind", "status"}, "correlator_repairs": nil, "cursors": {"collector", "position"},
}

var (
	aWrite   = regexp.MustCompile(`(?is)^\s*(insert)\s+into\s+(\w+)\s*\(([^)]*)\)\s*values\s*\(([^)]*)\)|^\s*(update)\s+(\w+)\s+set\s+(.*?)\s+where\s|^\s*(delete)\s+from\s+(\w+)`)
	assigned = regexp.MustCompile(`(\w+)\s*=\s*(\$\d+|'[^']*'|\w+)`)
)

// written is what a statement writes of the path.
type written struct {
	what          string // its verb, its table and what tells it from others
	record, state string // of an incident or an action
}

func described(text string, args []string) []written {
	m := aWrite.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	verb, table := strings.ToLower(m[1]+m[5]+m[8]), m[2]+m[6]+m[9]
	columns, ours := pathTables[table]
	if !ours {
		return nil
	}
	value := func(of string) string {
		if n, err := strconv.Atoi(strings.TrimPrefix(of, "$")); strings.HasPrefix(of, "$") && err == nil && n <= len(args) {
			return args[n-1]
		}
		return strings.Trim(of, "'")
	}
	set := map[string]string{}
	values := strings.Split(m[4], ",")
	for i, column := range strings.Split(m[3], ",") {
		if i < len(values) {
			set[strings.TrimSpace(column)] = value(strings.TrimSpace(values[i]))
		}
	}
	for _, a := range assigned.FindAllStringSubmatch(m[7], -1) {
		if _, known := set[a[1]]; !known {
			set[a[1]] = value(a[2])
		}
	}
	lock := len(set) == 1 && set["fence"] != ""
	lease := table == "workflows" && set["holder"] != ""
	other := table == "records" && !slices.Contains([]string{"incident", "action", "alert"}, set["kind"])
	if lock || lease || other {
		return nil
	}
	said := []string{verb, table}
	for _, column := range columns {
		switch v := set[column]; {
		case v == "":
		case column == "steps":
			said = append(said, lastStep(v))
		case column == "position": // of a collector: whether it has something to tell
			if strings.Contains(v, "untold") {
				said = append(said, "untold")
			}
		case column == "detail": // of the audit: the action, its kind and state, and words
			words := strings.SplitN(v, " ", 4)
			said = append(said, words[min(1, len(words)-1)], words[min(2, len(words)-1)])
		default:
			said = append(said, v)
		}
	}
	w := written{what: strings.Join(slices.DeleteFunc(said, func(s string) bool { return s == "" }), " ")}
	if table == "records" {
		w.record, w.state = set["kind"]+" "+set["id"], set["status"]
	}
	return []written{w}
}

// lastStep is how far a workflow is.
func lastStep(doc string) string {
	var all []schemas.WorkflowStep
	if err := json.Unmarshal([]byte(doc), &all); err != nil {
		return ""
	}
	said := ""
	for _, s := range all {
		if s.Status != schemas.StepPending {
			said = s.Name + "=" + s.Status
			if s.Operation != "" && s.Status == schemas.StepRunning {
				said += " asked"
			}
		}
	}
	return said
}

// signature is what a transaction writes, however often and in whatever order; "" is nothing but rows of the audit.
func signature(writes []written) string {
	var all []string
	only := true
	for _, w := range writes {
		all = append(all, w.what)
		only = only && strings.HasPrefix(w.what, "insert control_audit")
	}
	if only {
		return ""
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// summary lists the writes at which the product was killed.
func (k *killer) summary() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d kills at %d writes", k.kills, len(k.times))
	for _, write := range slices.Sorted(maps.Keys(k.times)) {
		fmt.Fprintf(&b, "\n%d  %s", k.times[write], write)
	}
	return b.String()
}
