package ipmi

import (
	"strings"
	"testing"
	"time"
)

// What is there does not change by itself: it is asked for each hour, and told as long as it stands.
func TestSerialOverLANIsAskedForSeldomAndToldOften(t *testing.T) {
	l := newLog(t, func(c *Config) { c.SensorInterval = c.Interval })
	told := func() (n int) {
		for _, line := range l.rec.Lines() {
			if strings.Contains(line, `"auspex_server_console_sessions","labels":{"console":"serial","port":"","protocol":"IPMI"},"value":1`) {
				n++
			}
		}
		return n
	}
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	for range 5 { // half a minute each
		l.poll()
		now = now.Add(30 * time.Second)
	}
	asked := l.r.sol.readAt
	if n := told(); n != 1 || asked.IsZero() { // the recorder has each series once
		t.Errorf("told in %d series, asked at %v", n, asked)
	}
	if l.r.sol.toldAt.Before(now.Add(-consoleTells)) {
		t.Errorf("told last at %v, now %v", l.r.sol.toldAt, now)
	}
	now = now.Add(consoleReads)
	l.poll()
	if !l.r.sol.readAt.After(asked) {
		t.Error("it is not asked for again")
	}
}
