package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// kills is how often the product is killed while the simulated fleet lives on.
const kills = 20

func TestEveryRecordIsStoredOnceOverKills(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	random := rand.New(rand.NewPCG(1, 2)) // the moments differ, the order of them is the same in each run
	fleet := 0
	for n := range kills {
		p := launch(t, dir, "--demo", "--script", "testdata/scripts/storm.yaml", "--seed", "5")
		if n%4 != 3 { // one in four is killed on its way up
			p.ready()
			switch fleet {
			case 0:
				fleet = p.pids["simulator"]
			case p.pids["simulator"]:
			default:
				t.Fatalf("kill %d: another simulator, %d and not %d", n, p.pids["simulator"], fleet)
			}
			time.Sleep(time.Duration(500+random.IntN(4500)) * time.Millisecond) // the moment of the kill
		} else {
			time.Sleep(time.Duration(200+random.IntN(2000)) * time.Millisecond) // likewise
		}
		p.kill()
	}
	if n := storedOnce(t, startDemo(t, dir)); n < 150 {
		t.Errorf("the fleet has said only %d things", n)
	}
}

// storedOnce lets the product, in its last life, read what is left, and compares the
// table with the ledger: every record once. It returns how many there are.
func storedOnce(t *testing.T, p *product) int {
	t.Helper()
	dir := p.dir
	early := recordCounts(output(t, dir))
	p.stores(early)
	time.Sleep(15 * time.Second) // three readings of each device: what is read again must not be stored again
	p.interrupt()
	stored := map[string]int{}
	t.Run("table", func(t *testing.T) { // its end lets go of the engine
		stored = rowCounts(events(t, openHistory(t, dir), "source IN ('ipmi', 'redfish', 'kmsg')"))
	})
	final := recordCounts(output(t, dir))
	for key, n := range stored {
		if n != 1 || final[key] == 0 {
			t.Errorf("%s stands %d times in the table, read without FINAL; the ledger has it %d times", key, n, final[key])
		}
	}
	for key := range early {
		if stored[key] == 0 {
			t.Errorf("%s is not in the table", key)
		}
	}
	t.Logf("%d records, each once", len(stored))
	return len(stored)
}

func TestAResetIsSentOnceOverKills(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	random := rand.New(rand.NewPCG(3, 4))
	args := []string{
		"--demo", "--mode", "enforce", "--script", "testdata/scripts/lost-gpu.yaml", "--seed", "9", "--set", "store.clickhouse=off",
		"--set", "control.policies=" + verifiedWithin(t, "5m"), // the kills take of it
	}
	const server = "gpu-r03-04"
	// Kills come closer together while the server is drained and power-cycled: that
	// is where a step could be repeated.
	for range 12 {
		p := launch(t, dir, args...)
		p.ready()
		time.Sleep(time.Duration(1000+random.IntN(5000)) * time.Millisecond) // the moment of the kill
		p.kill()
	}
	p := startDemo(t, dir, args[1:]...)
	lost := false // killed between what it wrote and what it would have sent: it does not send it later, and nobody but a person can know
	p.awaitFor(2*patience, server+" is repaired, or a person is told", func() error {
		acts, err := p.actionsOn(server)
		sent := acts["power_cycle"].State
		if lost = err == nil && (sent == schemas.ActionUnknown || sent == schemas.ActionFailed) && acts["ticket"].State == schemas.ActionProposed; lost {
			return nil
		}
		return p.isRepaired(server, "power_cycle")
	})
	p.interrupt()
	resets := map[string]int{}
	for _, e := range output(t, dir) {
		if e.Kind != ledger.KindReset {
			continue
		}
		if e.RequestID == "" || e.Device != server {
			t.Errorf("a reset that is nobody's: %+v", e)
		}
		resets[e.RequestID]++
	}
	if lost != (len(resets) == 0) {
		t.Errorf("a person was told that none is known to have come: %v; %d came", lost, len(resets))
	}
	for id, n := range resets {
		if n > 1 {
			t.Errorf("action %s sent %d resets", id, n)
		}
	}
	t.Logf("resets by action: %v", resets)
}
