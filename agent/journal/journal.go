// Package journal keeps what a server has to say on its disk until somebody has
// acknowledged it: lines of the kernel's log and events. It is bounded; what had to go
// for space is counted. An appended record is there after the process is killed, whole
// or not at all.
package journal

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"auspex/internal/datafile"
	"auspex/internal/target"
)

// Kinds of records.
const (
	KindKernel = "kernel" // Data is a line in the format of /dev/kmsg
	KindEvent  = "event"  // Data is a schemas.Event as JSON
	// Of KindFabric Data is the offset of the machine's clock from UTC, as +0800, and a line of
	// fabric manager's log.
	KindFabric = "fabric-manager"
	// KindIMEX is likewise of the log of NVIDIA's IMEX daemon.
	KindIMEX = "imex"
)

// Mark is where the reader of a source goes on, kept with the records that it wrote.
type Mark struct {
	Epoch string `json:"epoch"` // what the position counts in, such as a boot id
	Next  uint64 `json:"next"`
}

const (
	segments   = 8 // of which a full journal consists
	suffix     = ".seg"
	stateFile  = "state.json"
	maxPayload = 128 << 10
)

// ErrTooLong is returned for a record that no journal takes.
var ErrTooLong = errors.New("record is too long for the journal")

// Journal is a list of records on disk. It is for use by several goroutines; the
// folder belongs to one process at a time.
type Journal struct {
	dir string
	max int64

	mu    sync.Mutex
	segs  []segment // in order, at least one
	file  *os.File  // the last segment
	lock  *os.File
	dirty bool
	last  uint64
	marks map[string]Mark
	state state
	news  chan struct{}
}

// state is what the segments do not say.
type state struct {
	ID           string `json:"id"` // of this journal, as long as its numbers are not used again
	Acknowledged uint64 `json:"acknowledged"`
	Dropped      uint64 `json:"dropped"` // records that went for space, unacknowledged
	Last         uint64 `json:"last"`    // at least so far the numbers have gone
	Boot         string `json:"boot"`    // of the machine, in which it was opened
	Open         bool   `json:"open"`    // it was not closed
}

// segment is a file of records; its name is the number of the first.
type segment struct {
	first uint64
	size  int64
	count uint64
	index []int64 // where every stride-th record begins, from the first on
}

// stride is how many records may have to be passed over to find one.
const stride = 64

// add takes note of a record that ends at an offset.
func (s *segment) add(begin, end int64) {
	if s.count%stride == 0 {
		s.index = append(s.index, begin)
	}
	s.count++
	s.size = end
}

// seek returns where to begin to read for a record.
func (s *segment) seek(sequence uint64) int64 {
	if sequence <= s.first || len(s.index) == 0 {
		return 0
	}
	return s.index[min(uint64(len(s.index)-1), (sequence-s.first)/stride)]
}

// Status says how a journal stands.
type Status struct {
	ID                                 string
	First, Last, Acknowledged, Dropped uint64
	Bytes                              int64
}

// Open opens or makes the journal of a folder, with at most so many bytes, on a machine
// with a boot id. Where the machine went down beneath it, records may be lost that were
// told already and their numbers given again: it is another journal then, of which a
// reader begins anew.
func Open(dir string, maxBytes int64, boot string) (*Journal, error) {
	if maxBytes < 64<<10 {
		return nil, errors.New("a journal has at least 64 KiB")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{dir: dir, max: maxBytes, marks: map[string]Mark{}, news: make(chan struct{})}
	var err error
	if j.lock, err = lock(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if err := j.load(boot); err != nil {
		_ = j.lock.Close()
		return nil, fmt.Errorf("open journal %s: %w", dir, err)
	}
	return j, nil
}

func (j *Journal) load(boot string) error {
	b, err := os.ReadFile(filepath.Join(j.dir, stateFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := json.Unmarshal(b, &j.state); err != nil { // none, or one that went down half written
		j.state = state{}
	}
	if j.state.ID == "" || j.state.Open && j.state.Boot != boot {
		var id [8]byte
		if _, err := rand.Read(id[:]); err != nil {
			return err
		}
		j.state.ID = hex.EncodeToString(id[:])
	}
	j.state.Boot, j.state.Open = boot, true
	if err := j.save(); err != nil {
		return err
	}
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if first, err := strconv.ParseUint(name, 16, 64); ok && err == nil {
			j.segs = append(j.segs, segment{first: first})
		}
	}
	slices.SortFunc(j.segs, func(a, b segment) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	j.last = max(j.state.Acknowledged, j.state.Last)
	for i := range j.segs {
		if err := j.measure(&j.segs[i], i == len(j.segs)-1); err != nil {
			return err
		}
	}
	if n := len(j.segs); n == 0 || j.segs[n-1].first+j.segs[n-1].count != j.last+1 { // numbers in a segment have no gaps
		return j.begin()
	}
	j.file, err = os.OpenFile(j.name(j.segs[len(j.segs)-1]), os.O_RDWR|os.O_APPEND, 0o600)
	return err
}

// measure reads a segment. Of the last one what a killed process has left unfinished is
// cut off; in an earlier one nothing after damage can be read.
func (j *Journal) measure(s *segment, last bool) error {
	f, err := os.OpenFile(j.name(*s), os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := newReader(f)
	for {
		rec, err := r.next()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, errDamaged) {
				return err
			}
			break
		}
		begin := s.size
		s.size = r.offset
		if rec.marks != nil {
			maps.Copy(j.marks, rec.marks)
			continue
		}
		s.add(begin, r.offset)
		j.last = max(j.last, rec.Sequence)
		if rec.source != "" {
			j.marks[rec.source] = rec.mark
		}
	}
	if last {
		return f.Truncate(s.size)
	}
	return nil
}

func (j *Journal) name(s segment) string {
	return filepath.Join(j.dir, fmt.Sprintf("%016x%s", s.first, suffix))
}

// begin makes the next segment. It starts with the marks, so that they stay when the
// segments before it go.
func (j *Journal) begin() error {
	s := segment{first: j.last + 1}
	f, err := os.OpenFile(j.name(s), os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	b, err := encodeMarks(j.marks)
	if err == nil {
		_, err = f.Write(b)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return err
	}
	s.size = int64(len(b))
	if j.file != nil {
		_ = j.file.Sync()
		_ = j.file.Close()
	}
	j.file = f
	if n := len(j.segs); n > 0 && j.segs[n-1].first == s.first {
		j.segs = j.segs[:n-1] // it held no record
	}
	j.segs = append(j.segs, s)
	return nil
}

// save writes the state anew, whole, to the disk.
func (j *Journal) save() error {
	j.state.Last = max(j.state.Last, j.last)
	b, err := json.Marshal(j.state)
	if err != nil {
		return err
	}
	return datafile.Replace(filepath.Join(j.dir, stateFile), b)
}

// Append adds a record and gives it its number; with a source, it moves that source's
// mark with it, both or neither.
func (j *Journal) Append(r target.Record, source string, mark Mark) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return 0, os.ErrClosed
	}
	tail := &j.segs[len(j.segs)-1]
	if tail.size >= j.max/segments && tail.count > 0 {
		if err := j.begin(); err != nil {
			return 0, fmt.Errorf("append to journal: %w", err)
		}
		if err := j.shrink(); err != nil {
			return 0, fmt.Errorf("append to journal: %w", err)
		}
		tail = &j.segs[len(j.segs)-1]
	}
	r.Sequence = j.last + 1
	b, err := encode(&r, source, mark)
	if err != nil {
		return 0, err
	}
	if n, err := j.file.Write(b); err != nil {
		if n > 0 { // a full disk: the next record must not stand behind a torn one
			if err := j.file.Truncate(tail.size); err != nil {
				return 0, fmt.Errorf("append to journal: %w", err)
			}
		}
		return 0, fmt.Errorf("append to journal: %w", err)
	}
	tail.add(tail.size, tail.size+int64(len(b)))
	j.last, j.dirty = r.Sequence, true
	if source != "" {
		j.marks[source] = mark
	}
	close(j.news)
	j.news = make(chan struct{})
	return r.Sequence, nil
}

// shrink removes the oldest segments while there is more than may be.
func (j *Journal) shrink() error {
	for len(j.segs) > 1 && (len(j.segs) > segments || j.bytes() > j.max) {
		if lost := j.unacknowledged(j.segs[0]); lost > 0 {
			j.state.Dropped += lost
			if err := j.save(); err != nil {
				return err
			}
		}
		if err := os.Remove(j.name(j.segs[0])); err != nil {
			return err
		}
		j.segs = j.segs[1:]
	}
	return nil
}

// unacknowledged counts the records of a segment that nobody has acknowledged.
func (j *Journal) unacknowledged(s segment) uint64 {
	end := s.first + s.count // numbers in a segment have no gaps
	return end - min(end, max(s.first, j.state.Acknowledged+1))
}

func (j *Journal) bytes() (n int64) {
	for _, s := range j.segs {
		n += s.size
	}
	return n
}

// Acknowledge forgets the records up to a number. Going back is no error, and does
// nothing; a number that was never given is one.
func (j *Journal) Acknowledge(n uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case n > j.last:
		return fmt.Errorf("record %d is not known: the newest is %d", n, j.last)
	case n <= j.state.Acknowledged:
		return nil
	}
	before := j.state.Acknowledged
	j.state.Acknowledged = n
	if err := j.save(); err != nil {
		j.state.Acknowledged = before
		return fmt.Errorf("acknowledge: %w", err)
	}
	for len(j.segs) > 1 && j.unacknowledged(j.segs[0]) == 0 {
		if err := os.Remove(j.name(j.segs[0])); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
		j.segs = j.segs[1:]
	}
	return nil
}

// Read implements [target.Log]: records that are not acknowledged.
func (j *Journal) Read(after uint64, maxRecords int) ([]target.Record, error) {
	j.mu.Lock()
	after = max(after, j.state.Acknowledged)
	type span struct {
		name     string
		from, to int64
	}
	var spans []span
	for i, s := range j.segs {
		if i+1 < len(j.segs) && j.segs[i+1].first <= after+1 || s.count == 0 {
			continue
		}
		spans = append(spans, span{j.name(s), s.seek(after + 1), s.size})
	}
	last := j.last
	j.mu.Unlock()
	if after >= last {
		return nil, nil
	}
	var out []target.Record
	for _, s := range spans {
		f, err := os.Open(s.name)
		if errors.Is(err, os.ErrNotExist) {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		r := newReader(io.NewSectionReader(f, s.from, s.to-s.from))
		for len(out) < maxRecords {
			rec, err := r.next()
			if err != nil {
				break // the end, or damage: what is behind it cannot be read
			}
			if rec.marks == nil && rec.Sequence > after {
				out = append(out, rec.Record)
			}
		}
		_ = f.Close()
		if len(out) >= maxRecords {
			break
		}
	}
	return out, nil
}

// Changed implements [target.Log].
func (j *Journal) Changed() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.news
}

// Newest implements [target.Log].
func (j *Journal) Newest() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Mark returns where the reader of a source goes on; the zero value is at its start.
func (j *Journal) Mark(source string) Mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.marks[source]
}

// Status returns how the journal stands.
func (j *Journal) Status() Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Status{
		ID: j.state.ID, First: max(j.segs[0].first, j.state.Acknowledged+1), Last: j.last, Acknowledged: j.state.Acknowledged,
		Dropped: j.state.Dropped, Bytes: j.bytes(),
	}
}

// Sync makes what was appended outlive a crash of the machine.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.dirty || j.file == nil {
		return nil
	}
	j.dirty = false
	return j.file.Sync()
}

// Close ends the journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.file.Sync(), j.file.Close())
	if j.file = nil; err == nil {
		j.state.Open = false
		err = j.save()
	}
	return errors.Join(err, j.lock.Close())
}
