package kafka

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/segmentio/kafka-go/compress"
)

// errUnpacked says that a record batch is larger unpacked than any of ours: whoever made
// it wants our memory. A batch of our own writers holds little more than one largest message.
var errUnpacked = errors.New("a packed record batch is too large")

// minUnpacked is what a batch may unpack to at least, in bytes: other versions and
// settings of ours may have written it.
const minUnpacked = 64 << 20

var (
	// mostUnpacked is what any batch may unpack to in this process, in bytes: the client
	// library has one table of codecs for all.
	mostUnpacked atomic.Int64
	boundOnce    sync.Once
)

// boundUnpacking lets no codec of the client library give more than four of the largest
// messages: it unpacks a batch as a whole before anything of it can be looked at.
func boundUnpacking(maxMessage int) {
	for n := max(minUnpacked, 4*int64(maxMessage)); ; {
		old := mostUnpacked.Load()
		if old >= n || mostUnpacked.CompareAndSwap(old, n) {
			break
		}
	}
	boundOnce.Do(func() {
		for i, c := range compress.Codecs {
			if c != nil {
				compress.Codecs[i] = boundedCodec{c}
			}
		}
	})
}

// boundedCodec is a codec that gives up on what is too large.
type boundedCodec struct{ compress.Codec }

// NewReader implements [compress.Codec].
func (c boundedCodec) NewReader(r io.Reader) io.ReadCloser {
	return &boundedReader{r: c.Codec.NewReader(r), left: mostUnpacked.Load()}
}

// boundedReader hides WriteTo of the reader below it, which knows no bound.
type boundedReader struct {
	r    io.ReadCloser
	left int64
}

// Read implements [io.Reader].
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := b.r.Read(make([]byte, 1)); n == 0 && err != nil {
			return 0, err // it ends where it may
		}
		return 0, fmt.Errorf("%w: more than %d MiB unpacked", errUnpacked, mostUnpacked.Load()>>20)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	return n, err
}

// Close implements [io.Closer].
func (b *boundedReader) Close() error { return b.r.Close() }
