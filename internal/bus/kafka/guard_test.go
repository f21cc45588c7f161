package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// answerOf is an answer to a fetch, as a broker writes it.
func answerOf(t testing.TB, version int16, attributes protocol.Attributes, headers bool) []byte {
	t.Helper()
	var records []protocol.Record
	for i := range 20 {
		r := protocol.Record{Key: protocol.NewBytes([]byte("k")), Value: protocol.NewBytes(bytes.Repeat([]byte{byte(i)}, i*100))}
		if headers {
			r.Headers = []protocol.Header{{Key: "h", Value: []byte("v")}}
		}
		records = append(records, r)
	}
	set := protocol.RecordSet{Version: 2, Attributes: attributes, Records: protocol.NewRecordReader(records...)}
	var b bytes.Buffer
	if err := protocol.WriteResponse(&b, version, 7, &fetch.Response{Topics: []fetch.ResponseTopic{{Topic: "t", Partitions: []fetch.ResponsePartition{
		{HighWatermark: 20, AbortedTransactions: []fetch.ResponseTransaction{{ProducerID: 1}}, RecordSet: set},
	}}}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// batchAt is where the one batch of an answer begins.
func batchAt(t testing.TB, frame []byte) int {
	t.Helper()
	at := bytes.Index(frame, []byte{2}) // the magic
	for ; at >= 0; at++ {
		if at >= 16 && frame[at] == 2 && at+45 < len(frame) {
			size := int(int32(binary.BigEndian.Uint32(frame[at-8:])))
			if at-4+size == len(frame) {
				return at - 16
			}
		}
		if at+1 >= len(frame) {
			break
		}
	}
	t.Fatal("no batch")
	return 0
}

func TestAnAnswerThatStatesMoreThanItHoldsIsRefused(t *testing.T) {
	for version := int16(4); version <= 11; version++ {
		for _, attributes := range []protocol.Attributes{0, protocol.Gzip, protocol.Zstd} {
			for _, headers := range []bool{false, true} {
				name := fmt.Sprint(version, attributes, headers)
				frame := answerOf(t, version, attributes, headers)
				if !fits(frame[8:], version) {
					t.Fatalf("%s: an honest answer is refused", name)
				}
				for n := range len(frame) - 8 { // whatever is cut off, nothing falls over
					fits(frame[8:8+n], version)
				}
				at := batchAt(t, frame)
				for _, n := range []uint32{1 << 31, 1<<31 - 1, 1 << 30} {
					bad := bytes.Clone(frame)
					binary.BigEndian.PutUint32(bad[at+12+45:], n)
					crc := crc32.Checksum(bad[at+12+9:], crc32.MakeTable(crc32.Castagnoli))
					binary.BigEndian.PutUint32(bad[at+12+5:], crc)
					if fits(bad[8:], version) {
						t.Errorf("%s: a count of %d is believed", name, n)
					}
				}
			}
		}
	}
	frame := answerOf(t, 11, 0, true)
	i := bytes.Index(frame, []byte{2, 2, 'h'}) // one header, of a name of one byte
	bad := append(bytes.Clone(frame[:i]), 0xfe, 0xff, 0xff, 0xff, 0x0f)
	bad = append(bad, frame[i+1:]...)
	at := batchAt(t, frame)
	binary.BigEndian.PutUint32(bad[at+8:], binary.BigEndian.Uint32(bad[at+8:])+4)
	binary.BigEndian.PutUint32(bad[at-4:], binary.BigEndian.Uint32(bad[at-4:])+4)
	if fits(bad[8:], 11) {
		t.Error("a count of headers is believed")
	}
}

// scripted is a connection that reads what a broker says.
type scripted struct {
	net.Conn
	r io.Reader
}

func (s scripted) Read(p []byte) (int, error)  { return s.r.Read(p) }
func (s scripted) Write(p []byte) (int, error) { return len(p), nil }

// What is honest comes through byte for byte, however it is cut, and what is not ends
// the connection.
func TestAGuardedConnectionHandsOnWhatIsHonest(t *testing.T) {
	var request bytes.Buffer
	if err := protocol.WriteRequest(&request, 11, 7, "auspex", &fetch.Request{Topics: []fetch.RequestTopic{{
		Topic: "t", Partitions: []fetch.RequestPartition{{Partition: 0}},
	}}}); err != nil {
		t.Fatal(err)
	}
	honest := answerOf(t, 11, 0, true)
	other := []byte{0, 0, 0, 6, 0, 0, 0, 9, 1, 2} // to another request
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "by bytes": iotest.OneByteReader, "by halves": iotest.HalfReader,
	} {
		t.Run(name, func(t *testing.T) {
			g := &guard{fetches: map[int32]int16{}}
			g.Conn = scripted{r: cut(io.MultiReader(bytes.NewReader(other), bytes.NewReader(honest)))}
			for _, b := range request.Bytes() {
				_, _ = g.Write([]byte{b})
			}
			got, err := io.ReadAll(g)
			if err != nil || !bytes.Equal(got, append(bytes.Clone(other), honest...)) {
				t.Errorf("%d bytes of %d, %v", len(got), len(other)+len(honest), err)
			}
			bad := bytes.Clone(honest)
			binary.BigEndian.PutUint32(bad[batchAt(t, bad)+12+45:], 1<<30)
			g = &guard{fetches: map[int32]int16{}, Conn: scripted{r: cut(bytes.NewReader(bad))}}
			_, _ = g.Write(request.Bytes())
			if got, err := io.ReadAll(g); !errors.Is(err, errCount) || len(got) > 0 {
				t.Errorf("%d bytes were handed on, %v", len(got), err)
			}
		})
	}
	for _, size := range []uint32{0, 3, 1 << 31, 1<<31 - 1} {
		g := &guard{fetches: map[int32]int16{}, Conn: scripted{r: bytes.NewReader(binary.BigEndian.AppendUint32(nil, size))}}
		if _, err := io.ReadAll(g); !errors.Is(err, errCount) {
			t.Errorf("an answer of %d bytes: %v", size, err)
		}
	}
	alert := []byte{0x15, 0x03, 0x03, 0, 2, 2, 70} // of TLS, which the library names
	g := &guard{fetches: map[int32]int16{}, Conn: scripted{r: bytes.NewReader(alert)}}
	if got, err := io.ReadAll(g); err != nil || !bytes.Equal(got, alert) {
		t.Errorf("%x, %v", got, err)
	}
}

func FuzzFits(f *testing.F) {
	for v := int16(4); v <= 11; v++ {
		f.Add(answerOf(f, v, 0, true)[8:], v)
	}
	f.Fuzz(func(_ *testing.T, b []byte, version int16) { fits(b, version) })
}
