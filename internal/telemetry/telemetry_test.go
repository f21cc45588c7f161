package telemetry_test

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/telemetry"
)

func TestARepeatingCallSiteIsLimitedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		reg := prometheus.NewRegistry()
		log, _ := telemetry.NewLogger(telemetry.LogConfig{Level: "info", Format: "text"}, &b, reg)
		for i := range 101 {
			if i == 100 {
				if n := strings.Count(b.String(), "\n"); n != 20 {
					t.Errorf("%d lines written, want 20", n)
				}
				time.Sleep(11 * time.Second)
			}
			log.Warn("read failed", "part", "p1")
		}
		if !strings.Contains(b.String(), "suppressed=80") {
			t.Error("the next line does not say how many were left out")
		}
	})
}

func TestADeviceThatFloodsWritesOneLineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log, _ := telemetry.NewLogger(telemetry.LogConfig{Level: "info", Format: "text"}, &b, nil)
		loud := log.With("collector", "ipmi", "device", "loud")
		for range 600 { // ten minutes
			for range 5 {
				loud.Warn("device floods")
			}
			time.Sleep(time.Second)
		}
		log.Warn("device floods", "device", "quiet") // the same call site would be another line
		if n := strings.Count(b.String(), "device=loud"); n != 10 {
			t.Errorf("%d lines of the device that floods, want 10", n)
		}
		if n := strings.Count(b.String(), "suppressed=299"); n != 9 {
			t.Errorf("%d lines say how many were left out, want 9:\n%s", n, b.String())
		}
		b.Reset()
		floods := func(device string) { log.Warn("device floods", "device", device) }
		for i := range 100 {
			for range 50 {
				floods("loud")
			}
			floods(string(rune('a' + i%19)))
		}
		for i := range 19 {
			if !strings.Contains(b.String(), "device="+string(rune('a'+i))) {
				t.Errorf("the device that floods took the turn of %c", 'a'+i)
			}
		}
	})
}

func TestReadyAfterStartAndDegradedPartsShow(t *testing.T) {
	var h telemetry.Health
	h.Check("history", func() error { return errors.New("engine is missing") })
	h.Check("control", func() error { return errors.Join(errors.New("one thing"), errors.New("another")) })
	srv := telemetry.Handler(telemetry.NewRegistry(), &h)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/-/ready"); code != 503 {
		t.Errorf("ready before start: %d", code)
	}
	h.SetReady(true)
	if code, body := get("/-/ready"); code != 200 || !strings.Contains(body, "engine is missing") ||
		!strings.Contains(body, `"one thing; another"`) {
		t.Errorf("%d %s", code, body)
	}
	if _, body := get("/metrics"); !strings.Contains(body, "auspex_build_info{") {
		t.Error("no build info")
	}
}
