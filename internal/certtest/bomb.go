package certtest

import (
	"bytes"
	"compress/gzip"
	"testing"
)

// Bomb returns a gzip file that unpacks to n bytes of spaces, a whole number of
// MiB. It is made of the same member again and again, so that making it costs
// little.
func Bomb(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b.Bytes(), n>>20)
}
