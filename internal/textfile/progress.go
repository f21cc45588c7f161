package textfile

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Progress tells on a terminal how much of its input a command has read. On
// anything else, and where it would mix with the output, it says nothing.
type Progress struct {
	w     io.Writer // nil is silent
	every time.Duration
	last  time.Time
	bytes int64
	shown bool
}

// NewProgress returns one that writes to stderr where that is a terminal and
// stdout is none.
func NewProgress(stderr, stdout io.Writer) *Progress {
	p := &Progress{every: 500 * time.Millisecond, last: time.Now()}
	if terminal(stderr) && !terminal(stdout) {
		p.w = stderr
	}
	return p
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// Reading returns an input that is counted under a name.
func (p *Progress) Reading(name string, in io.Reader) io.Reader {
	if p.w == nil {
		return in
	}
	return &countedInput{in: in, name: name, p: p}
}

// Count tells how many of how many are done.
func (p *Progress) Count(what string, done, of int) {
	if now := time.Now(); p.w != nil && now.Sub(p.last) >= p.every {
		p.last, p.shown = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%d of %d %s", done, of, what)
	}
}

// Clear leaves the line to other words.
func (p *Progress) Clear() {
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// Words returns the writer for what else is said meanwhile.
func (p *Progress) Words(stderr io.Writer) io.Writer {
	if p.w == nil {
		return stderr
	}
	return &clearedOutput{stderr, p}
}

type clearedOutput struct {
	out io.Writer
	p   *Progress
}

// Write implements io.Writer.
func (c *clearedOutput) Write(b []byte) (int, error) {
	c.p.Clear()
	return c.out.Write(b)
}

type countedInput struct {
	in   io.Reader
	name string
	p    *Progress
}

// Read implements io.Reader.
func (c *countedInput) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	p := c.p
	p.bytes += int64(n)
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last, p.shown = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%s: %.1f MB read", c.name, float64(p.bytes)/1e6)
	}
	return n, err
}
