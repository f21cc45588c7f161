package journal

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"syscall"

	"auspex/internal/target"
)

// A frame is the length of its body and the body's CRC-32C, four bytes each and little
// endian, and the body: JSON.
const header = 8

var (
	errDamaged = errors.New("damaged frame")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// body is what a frame says: a record, or the marks at the start of a segment.
type body struct {
	Sequence uint64          `json:"n,omitempty"`
	Time     int64           `json:"t,omitempty"`
	Kind     string          `json:"k,omitempty"`
	Boot     string          `json:"b,omitempty"`
	BootTime int64           `json:"bt,omitempty"`
	Data     []byte          `json:"d,omitempty"` // bytes, since the kernel's lines may hold any
	Source   string          `json:"s,omitempty"`
	Mark     *Mark           `json:"m,omitempty"`
	Marks    map[string]Mark `json:"marks,omitempty"`
}

func frame(b *body) ([]byte, error) {
	payload, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLong, len(payload))
	}
	out := make([]byte, header, header+len(payload))
	binary.LittleEndian.PutUint32(out, uint32(len(payload)))
	binary.LittleEndian.PutUint32(out[4:], crc32.Checksum(payload, castagnoli))
	return append(out, payload...), nil
}

func encode(r *target.Record, source string, mark Mark) ([]byte, error) {
	b := &body{
		Sequence: r.Sequence, Time: r.Time, Kind: r.Kind, Boot: r.Boot, BootTime: r.BootTime, Data: []byte(r.Data), Source: source,
	}
	if source != "" {
		b.Mark = &mark
	}
	return frame(b)
}

func encodeMarks(marks map[string]Mark) ([]byte, error) {
	if marks == nil {
		marks = map[string]Mark{}
	}
	return frame(&body{Marks: marks})
}

// entry is a frame that was read: a record, or marks.
type entry struct {
	target.Record
	source string
	mark   Mark
	marks  map[string]Mark
}

type reader struct {
	r      *bufio.Reader
	buf    []byte
	offset int64 // behind the last whole frame
}

func newReader(r io.Reader) *reader { return &reader{r: bufio.NewReader(r)} }

// next returns the next frame, io.EOF at the end, and errDamaged where there is none.
func (r *reader) next() (e entry, err error) {
	var h [header]byte
	if n, err := io.ReadFull(r.r, h[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return e, errDamaged
		}
		return e, err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n == 0 || n > maxPayload {
		return e, errDamaged
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return e, errDamaged
		}
		return e, err
	}
	var b body
	if crc32.Checksum(r.buf, castagnoli) != binary.LittleEndian.Uint32(h[4:]) || json.Unmarshal(r.buf, &b) != nil {
		return e, errDamaged
	}
	r.offset += header + int64(n)
	if b.Sequence == 0 {
		if b.Marks == nil {
			b.Marks = map[string]Mark{}
		}
		return entry{marks: b.Marks}, nil
	}
	e.Record = target.Record{Sequence: b.Sequence, Time: b.Time, Kind: b.Kind, Boot: b.Boot, BootTime: b.BootTime, Data: string(b.Data)}
	if b.Mark != nil {
		e.source, e.mark = b.Source, *b.Mark
	}
	return e, nil
}

// lock keeps a second process out of a journal; the kernel lets go when the first ends,
// however it ends.
func lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("journal is in use by another process (%s): %w", name, err)
	}
	return f, nil
}
