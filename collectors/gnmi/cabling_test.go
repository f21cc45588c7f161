package gnmi

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/schemas"
)

// board keeps what it is told.
type board struct {
	told [][]schemas.Neighbor
	err  error
}

func (b *board) Seen(_ context.Context, _ string, all []schemas.Neighbor) error {
	if b.err == nil {
		b.told = append(b.told, all)
	}
	return b.err
}

func leafOf(port, id, name, value string) *gpb.Update {
	return &gpb.Update{
		Path: parsePath("lldp/interfaces/interface[name=" + port + "]/neighbors/neighbor[id=" + id + "]/state/" + name),
		Val:  &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: value}},
	}
}

func TestNeighboursAreToldWhenTheyAreStill(t *testing.T) {
	b := &board{}
	s := &subscriber{device: "leaf-1", settings: collectors.Settings{Cabling: b, Now: time.Now}, metrics: newMetrics(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler)}
	st, err := newState(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	st.begin()
	tell := func() { st.cabling.tell(t.Context(), time.Now().Add(2*still+time.Millisecond)) }
	at := time.Unix(1700000000, 0)
	st.notification(&gpb.Notification{Timestamp: at.UnixNano(), Update: []*gpb.Update{
		leafOf("Ethernet1", "1", "chassis-id", "02:00:00:00:00:0a"), leafOf("Ethernet1", "1", "system-name", "gpu\x00-1"), leafOf("Ethernet1", "1", "age", "7"),
		{Path: parsePath("lldp/interfaces/interface[name=Ethernet2]/neighbors"), Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{
			JsonIetfVal: []byte(`{"openconfig-lldp:neighbor":[{"id":"9","state":{"id":"9","port-id":"02:00:00:00:00:0b","port-description":"ens3"}}]}`),
		}}},
	}})
	tell()
	if len(b.told) > 0 {
		t.Fatalf("before all is known: %+v", b.told)
	}
	st.synced()
	st.cabling.tell(t.Context(), time.Now())
	if len(b.told) > 0 {
		t.Fatalf("while it changes: %+v", b.told)
	}
	tell()
	if len(b.told) != 1 || len(b.told[0]) != 2 || b.told[0][0] != (schemas.Neighbor{Port: "Ethernet1", Chassis: "02:00:00:00:00:0a", System: "gpu-1", Seen: at.UTC()}) ||
		b.told[0][1] != (schemas.Neighbor{Port: "Ethernet2", PortID: "02:00:00:00:00:0b", PortDescription: "ens3", Seen: at.UTC()}) {
		t.Fatalf("%+v", b.told)
	}
	tell()
	st.notification(&gpb.Notification{Timestamp: at.UnixNano(), Update: []*gpb.Update{leafOf("Ethernet1", "1", "system-name", "gpu-1")}})
	tell()
	// A neighbour that goes is no word of a cable; of two that were, the one that stays is told.
	st.notification(&gpb.Notification{Delete: []*gpb.Path{parsePath("lldp/interfaces/interface[name=Ethernet2]/neighbors/neighbor[id=9]")}})
	tell()
	if len(b.told) != 1 {
		t.Fatalf("nothing is new: %+v", b.told[1:])
	}
	st.notification(&gpb.Notification{Timestamp: at.UnixNano(), Update: []*gpb.Update{leafOf("Ethernet1", "2", "system-name", "gpu-2")}})
	st.notification(&gpb.Notification{Delete: []*gpb.Path{
		parsePath("lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/system-name"),
		parsePath("lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/chassis-id"),
		parsePath("lldp/interfaces/interface[name=Ethernet1]/neighbors/neighbor[id=1]/state/age"),
	}})
	b.err = errors.New("locked")
	tell()
	b.err = nil
	st.cabling.tell(t.Context(), time.Now().Add(5*still))
	if len(b.told) != 2 || len(b.told[1]) != 1 || b.told[1][0].System != "gpu-2" {
		t.Fatalf("%+v", b.told)
	}
	st.begin() // a new stream tells all again
	st.synced()
	tell()
	if len(b.told) != 2 {
		t.Fatalf("%+v", b.told[2:])
	}
}
