package textfile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"auspex/internal/usage"
)

// NotAnInput refuses an output that would overwrite what is read.
func NotAnInput(out string, inputs ...string) error {
	for _, in := range inputs {
		if SameFile(out, in) {
			return fmt.Errorf("%w: the output would overwrite the input %s", usage.Err, in)
		}
	}
	return nil
}

// SameFile reports whether two paths lead to the same regular file or folder.
func SameFile(a, b string) bool {
	sa, err := os.Stat(a)
	if err != nil || !sa.Mode().IsRegular() && !sa.IsDir() {
		return false
	}
	sb, err := os.Stat(b)
	return err == nil && os.SameFile(sa, sb)
}

type output struct {
	io.Writer
	close []func() error
}

// Close implements io.Closer.
func (w *output) Close() error {
	var err error
	for i := len(w.close) - 1; i >= 0; i-- {
		err = errors.Join(err, w.close[i]())
	}
	return err
}

// Create creates a file that is packed as its name says (.gz, .zst); "-" and "" are
// stdout, which stays open. What was written is complete when Close has returned nil.
func Create(path string, stdout io.Writer) (io.WriteCloser, error) {
	if path == Stdin || path == "" {
		b := bufio.NewWriter(stdout)
		return &output{b, []func() error{b.Flush}}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	b := bufio.NewWriterSize(f, 1<<16)
	w := &output{b, []func() error{f.Close, b.Flush}}
	switch {
	case strings.HasSuffix(path, ".gz"):
		z := gzip.NewWriter(b)
		w.Writer, w.close = z, append(w.close, z.Close)
	case strings.HasSuffix(path, ".zst"):
		z, err := zstd.NewWriter(b)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		w.Writer, w.close = z, append(w.close, z.Close)
	}
	return w, nil
}
