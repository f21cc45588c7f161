package target

import (
	"fmt"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"
)

// BenchmarkSample tells all leaves of a server with eight GPUs, as at each interval.
func BenchmarkSample(b *testing.B) {
	t := NewTree()
	leaves := 0
	for gpu := range 8 {
		var refs []Ref
		for i := range 70 {
			refs = append(refs, t.Leaf(fmt.Sprintf("/gpus/gpu[name=gpu%d]/state/leaf-%d", gpu, i)))
		}
		for link := range 18 {
			for i := range 6 {
				refs = append(refs, t.Leaf(fmt.Sprintf("/gpus/gpu[name=gpu%d]/nvlink[link=%d]/state/leaf-%d", gpu, link, i)))
			}
		}
		w := t.Write(time.Now().Add(time.Duration(gpu)))
		for i, ref := range refs {
			w.Uint(ref, uint64(i*1000))
		}
		w.Close()
		leaves += len(refs)
	}
	v := view{}
	var found []reading
	var wire []byte
	bytes := 0
	b.ReportAllocs()
	for b.Loop() {
		found, bytes = t.look(&v, false, found[:0]), 0
		for _, n := range notifications(nil, gpb.Encoding_PROTO, found) {
			var err error
			if wire, err = (proto.MarshalOptions{}).MarshalAppend(wire[:0], &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}}); err != nil {
				b.Fatal(err)
			}
			bytes += len(wire)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(leaves), "ns/leaf")
	b.ReportMetric(float64(bytes)/float64(leaves), "B/leaf")
}
