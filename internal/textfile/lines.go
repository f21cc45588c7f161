package textfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine bounds a line in bytes.
const MaxLine = 4 << 20

// ErrLongLine is of a line longer than MaxLine; the lines behind it can be read.
var ErrLongLine = fmt.Errorf("line is longer than %d bytes", MaxLine)

// Lines hands out lines without their end, and survives long ones.
type Lines struct {
	r   *bufio.Reader
	n   int
	buf []byte
}

// NewLines returns the lines of a text.
func NewLines(r io.Reader) *Lines { return &Lines{r: bufio.NewReaderSize(r, 1<<16)} }

// Next returns the next line and its number; blank lines come back empty. The
// last line may come with io.EOF.
func (l *Lines) Next() ([]byte, int, error) {
	l.n++
	l.buf = l.buf[:0]
	long := false
	for {
		part, err := l.r.ReadSlice('\n')
		if !long {
			l.buf = append(l.buf, part...)
			long = len(l.buf) > MaxLine
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			return nil, l.n, ErrLongLine
		}
		return bytes.TrimSpace(l.buf), l.n, err
	}
}

// EachLine hands out the lines of a file that are not blank; a line that is
// too long comes as an error.
func EachLine(ctx context.Context, name string, in io.Reader, f func(n int, line []byte, err error) error) error {
	lines := NewLines(in)
	for {
		line, n, err := lines.Next()
		long := errors.Is(err, ErrLongLine)
		if err != nil && !long && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if long {
			if err := f(n, nil, err); err != nil {
				return err
			}
			continue
		}
		if len(line) > 0 {
			if err := f(n, line, nil); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Cells splits a line of CSV, in which quotes may stand anywhere, into cells without the blanks around them.
func Cells(line string) (out []string, err error) {
	if !strings.Contains(line, `"`) {
		out = strings.Split(line, ",")
	} else {
		c := csv.NewReader(strings.NewReader(line))
		c.LazyQuotes = true
		out, err = c.Read()
		var perr *csv.ParseError
		if errors.As(err, &perr) {
			err = perr.Err // it knows one line only
		}
	}
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out, err
}
