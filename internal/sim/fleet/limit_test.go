package fleet

import (
	"slices"
	"testing"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
)

func TestAPowerLimitHoldsWhatAServerDraws(t *testing.T) {
	w := newWorld(t, 1)
	w.work("gpu-r01-01")
	w.pass(time.Minute)
	b := w.BMC("gpu-r01-01").(device.PowerLimiter)
	before := w.sensor("gpu-r01-01", "Total Power").Value
	if err := b.SetPowerLimit(4000, true, "redfish", "act-1"); err != nil {
		t.Fatal(err)
	}
	w.pass(20 * time.Second)
	if got := w.sensor("gpu-r01-01", "Total Power").Value; before < 6000 || got > 4080 || got < 3500 {
		t.Errorf("it drew %g W, and %g W under a limit of 4,000 W", before, got)
	}
	if err := b.SetPowerLimit(4000, false, "redfish", "act-2"); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if got := w.sensor("gpu-r01-01", "Total Power").Value; got < before-200 {
		t.Errorf("it draws %g W without a limit, and %g W before", got, before)
	}
	if err := b.SetPowerLimit(200, true, "redfish", ""); err == nil {
		t.Error("a limit of 200 W was taken")
	}
}

func TestAFeedTripsWhereItCarriesTooMuch(t *testing.T) {
	for _, limited := range []bool{false, true} {
		w := newWorld(t, 1)
		w.cfg.FeedWatts = 9000 // two servers at half their power limits draw about 11 kW
		for _, s := range []string{"gpu-r01-01", "gpu-r01-02"} {
			w.work(s)
		}
		w.pass(time.Minute)
		if err := w.SetFeed("pdu-r01-a", false); err != nil {
			t.Fatal(err)
		}
		w.pass(5 * time.Second)
		if limited {
			for _, s := range []string{"gpu-r01-01", "gpu-r01-02"} {
				if err := w.BMC(s).(device.PowerLimiter).SetPowerLimit(4200, true, "ipmi", ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.pass(2 * tripAfter)
		tripped := slices.ContainsFunc(w.entries, func(e ledger.Entry) bool { return e.Kind == ledger.KindTrip && e.Device == "pdu-r01-b" })
		up := w.BMC("gpu-r01-01").Power() == device.PowerOn
		if tripped == limited || up != limited {
			t.Errorf("limited is %t: the feed tripped %t, and the server is up %t", limited, tripped, up)
		}
	}
}
