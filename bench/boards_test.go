package bench

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"auspex/internal/bmc/ipmi"
)

// The boards that a scenario reads answer as controllers do, count what they were asked, and behave as they are told.
func TestBoardsAnswerAndObey(t *testing.T) {
	orders, in := io.Pipe()
	pipe, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- RunPeer(t.Context(), PeerBoards, `{"boards":2}`, orders, out)
		_ = out.Close()
	}()
	send, receive := json.NewEncoder(in), json.NewDecoder(pipe)
	tell := func(o BoardsOrder) (r BoardsReport) {
		t.Helper()
		if err := send.Encode(o); err != nil {
			t.Fatal(err)
		}
		if err := receive.Decode(&r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	var hello BoardsReport
	if err := receive.Decode(&hello); err != nil || len(hello.Addresses) != 2 {
		t.Fatalf("%+v, %v", hello, err)
	}
	conns := make([]*ipmi.Conn, 2)
	for i, addr := range hello.Addresses {
		c, err := ipmi.New(ipmi.Options{Addr: addr, User: boardUser, Password: boardPassword, Timeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(t.Context()) }()
		conns[i] = c
		info, err := c.SELInfo(t.Context())
		if err != nil || info.Entries != 2 {
			t.Fatalf("%+v, %v", info, err)
		}
		raw, err := c.SensorRecords(t.Context())
		sensors, bad := ipmi.ParseSensors(raw)
		if err != nil || bad != 0 || len(sensors) != boardReadings {
			t.Fatalf("%d sensors, %d bad, %v", len(sensors), bad, err)
		}
		for i := range sensors {
			if v, err := c.Read(t.Context(), &sensors[i]); err != nil || !v.OK {
				t.Errorf("%s: %+v, %v", sensors[i].Name, v, err)
			}
		}
	}
	before := tell(BoardsOrder{Records: 1})
	if before.Records != 6 || before.Commands < 2*(1+boardReadings) {
		t.Errorf("%+v", before)
	}
	const delay = 20 * time.Millisecond
	tell(BoardsOrder{Behave: true, Delay: delay, From: 1, Slow: 1})
	for i, least := range []time.Duration{delay, 10 * delay} {
		began := time.Now()
		if on, err := conns[i].Power(t.Context()); err != nil || !on {
			t.Errorf("board %d: on %v, %v", i, on, err)
		}
		if took := time.Since(began); took < least {
			t.Errorf("board %d took %s, want %s at least", i, took, least)
		}
	}
	if after := tell(BoardsOrder{}); after.Commands < before.Commands+2 {
		t.Errorf("%+v after %+v", after, before)
	}
	_ = in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
