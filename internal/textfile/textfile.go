// Package textfile reads text as the commands take it: from a file or standard
// input, packed with gzip or Zstandard or not, with or without a byte order mark,
// which may be that of UTF-16; and says what is wrong with what it holds.
package textfile

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Stdin is the path that stands for standard input, and StdinName its name in
// messages.
const (
	Stdin     = "-"
	StdinName = "standard input"
)

// Name returns what a path is called in messages.
func Name(path string) string {
	if path == Stdin || path == "" {
		return StdinName
	}
	return path
}

// Bounds of what a packed file may hold. A few kilobytes can unpack to terabytes.
const (
	// MaxUnpacked is what a packed text read line by line may hold, in bytes, where
	// nothing else is asked for. Plain text has no bound: it is as large as it is.
	MaxUnpacked = 64 << 30
	// MaxWhole is what a file may hold that is read into memory as a whole.
	MaxWhole = 512 << 20
	// maxWindow is how far back Zstandard may refer; it is what `zstd -d` takes.
	maxWindow = 128 << 20
)

// ErrTooLarge is a text that holds more than it may.
var ErrTooLarge = errors.New("the text is too large")

// Open opens a file, or stdin where the path is "-", whose text has at most most
// bytes; 0 is [MaxUnpacked] for a packed one. The caller closes it; that leaves
// stdin open.
func Open(path string, stdin io.Reader, most int64) (io.ReadCloser, error) {
	if path == Stdin || path == "" {
		return NewReader(stdin, most)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, most)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	r.file = f
	return r, nil
}

// ReadFile returns the whole text of a file, which has at most [MaxWhole] bytes.
func ReadFile(path string, stdin io.Reader) ([]byte, error) { return readFile(path, stdin, MaxWhole) }

func readFile(path string, stdin io.Reader, most int64) ([]byte, error) {
	f, err := Open(path, stdin, most)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", Name(path), err)
	}
	return b, errors.Join(err, f.Close())
}

// Reader gives the text. It is not safe for concurrent use.
type Reader struct {
	*bufio.Reader
	unpack func() error
	file   io.Closer
}

// Close releases what unpacks, and the file that [Open] opened.
func (r *Reader) Close() error {
	var err error
	if r.unpack != nil {
		err = r.unpack()
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

const bufferBytes = 64 << 10

// NewReader sees through gzip and Zstandard by their first bytes, whatever a file
// is called. The bound is that of [Open].
func NewReader(in io.Reader, most int64) (*Reader, error) {
	r := &Reader{Reader: bufio.NewReaderSize(in, bufferBytes)}
	head, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(r.Reader)
		if err != nil {
			return nil, err
		}
		r.Reader, r.unpack = bufio.NewReaderSize(bound(z, cmp.Or(most, MaxUnpacked)), bufferBytes), z.Close
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r.Reader, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		r.Reader, r.unpack = bufio.NewReaderSize(bound(z, cmp.Or(most, MaxUnpacked)), bufferBytes), func() error { z.Close(); return nil }
	case most > 0:
		r.Reader = bufio.NewReaderSize(bound(r.Reader, most), bufferBytes)
	}
	head, _ = r.Peek(4) // an error comes again with the first line
	switch {
	case bytes.HasPrefix(head, []byte("\ufeff")):
		_, _ = r.Discard(3)
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		order := binary.ByteOrder(binary.LittleEndian)
		if head[0] == 0xfe {
			order = binary.BigEndian
		}
		_, _ = r.Discard(2)
		r.Reader = bufio.NewReaderSize(&utf16Reader{in: r.Reader, order: order}, bufferBytes)
	}
	return r, nil
}

// utf16Reader turns UTF-16, as shells of Windows redirect it, into UTF-8.
type utf16Reader struct {
	in    *bufio.Reader
	order binary.ByteOrder
	out   []byte // not yet read
}

// Read implements io.Reader.
func (u *utf16Reader) Read(p []byte) (int, error) {
	for len(u.out) < len(p) && (len(u.out) == 0 || u.in.Buffered() >= 4) {
		r, err := u.unit()
		if utf16.IsSurrogate(r) {
			var low rune
			low, err = u.unit()
			r = utf16.DecodeRune(r, low)
		}
		if err != nil {
			if len(u.out) > 0 {
				break
			}
			return 0, err
		}
		u.out = utf8.AppendRune(u.out, r)
	}
	n := copy(p, u.out)
	u.out = append(u.out[:0], u.out[n:]...)
	return n, nil
}

func (u *utf16Reader) unit() (rune, error) {
	var b [2]byte
	if _, err := io.ReadFull(u.in, b[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return utf8.RuneError, nil // half a character at the end
		}
		return 0, err
	}
	return rune(u.order.Uint16(b[:])), nil
}

// bounded reads at most left bytes; more are an error, and no end.
type bounded struct {
	io.Reader
	left, most int64
}

func bound(r io.Reader, most int64) io.Reader { return &bounded{r, most, most} }

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.most)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 { // one byte more than there may be
		return n - 1, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.most)
	}
	return n, err
}

// Reason says what is wrong with a piece of JSON in the words of the format, and
// not in those of the program that reads it.
func Reason(err error) string {
	var kind *json.UnmarshalTypeError
	var at *time.ParseError
	switch {
	case errors.As(err, &at):
		return fmt.Sprintf("time %q is not RFC 3339", at.Value)
	case !errors.As(err, &kind):
		return err.Error()
	}
	want := kind.Type.Kind().String()
	switch kind.Type.Kind() {
	case reflect.Struct, reflect.Map, reflect.Pointer:
		want = "object"
	case reflect.Slice:
		want = "array"
	case reflect.Float64, reflect.Int, reflect.Int64:
		want = "number"
	}
	if kind.Field == "" {
		return fmt.Sprintf("want %s, got %s", want, kind.Value)
	}
	return fmt.Sprintf("%s: want %s, got %s", kind.Field, want, kind.Value)
}
