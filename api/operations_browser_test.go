package api_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/schemas"
)

// What somebody asked for has no incident: the page of actions says who asked for what, and what holds it.
func TestWhatIsAskedForIsShownOnThePageOfActions(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	now := time.Now().UTC()
	asked := schemas.Sentence{ID: "request.asked", Args: map[string]any{"who": "ann", "kind": "power_off", "reason": "request"}}
	held := schemas.Sentence{ID: "check.hourly_rate", Args: map[string]any{"n": 6}}
	detail := schemas.Sentence{ID: "step.held", Args: map[string]any{"rail": "destructive_per_hour", "why": held}}
	jobs := schemas.Sentence{ID: "check.jobs_run", Args: map[string]any{"server": "gpu-r01-02", "n": 1, "jobs": "job-141 of bea"}}
	for _, a := range []schemas.Action{
		{ID: "q1", Server: "gpu-r01-03", State: schemas.ActionWaiting, DetailSentence: &detail, Rails: []schemas.Rail{{Name: "destructive_per_hour", Limit: 6, Value: 7, Sentence: &held}}},
		{ID: "q2", Server: "gpu-r01-02", State: schemas.ActionRefused, DetailSentence: &jobs},
	} {
		a.Time, a.Created, a.Kind, a.Mode, a.Reason, a.Actor, a.Why, a.Sentence, a.Attempt = now, now, "power_off", schemas.ModeEnforce, "request", "ann", "x", &asked, 1
		a.Ladder = []string{"power_off"}
		if err := w.records.PutAction(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	shots := os.Getenv("AUSPEX_SHOTS")
	for _, c := range []struct {
		view               view
		asked, held, cause string
	}{
		{view{1280, 800, "dark", "en"}, "ann asked for “Power off” (request)", "Held by “Hourly budget”", "1 job runs on gpu-r01-02: job-141 of bea"},
		{view{390, 844, "light", "zh"}, "ann 请求“关机断电”（人工请求）", "每小时预算", "1 个作业在运行：job-141 of bea"},
	} {
		p := open(browser, t, w, access.RoleEngineer, c.view)
		p.visit(w.base + "actions")
		for _, text := range []string{c.asked, c.held, c.cause} {
			p.wait(text, fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
		}
		if broken := p.eval(`/undefined|request\.|step\.|check\./.test(document.querySelector('main').innerText) ? document.querySelector('main').innerText : ''`); broken != "" {
			t.Errorf("%s: %s", c.view.language, broken)
		}
		if wide := p.eval(fmt.Sprintf(tooWide, c.view.width)); wide != "" {
			t.Errorf("%d wide: %s", c.view.width, wide)
		}
		p.picture(shots, fmt.Sprintf("operations-%s-%d", c.view.language, c.view.width))
	}
}
