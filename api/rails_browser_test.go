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

// TestThePageOfActionsShowsWhoApprovedAndWhatItCosts has a step that one of two persons approved, in a freeze: its mode, who
// approved, what it would end, and, to an admin alone, the way past the freeze.
func TestThePageOfActionsShowsWhoApprovedAndWhatItCosts(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	now := time.Now().UTC()
	frozen := schemas.Sentence{ID: "check.frozen", Args: map[string]any{"server": "gpu-r03-06", "by": "li", "until": "2027-01-04T08:00:00Z", "reason": "year-end training", "freeze": "mw-1"}}
	agree := schemas.Sentence{ID: "check.quorum_met", Args: map[string]any{"n": 2, "need": 2, "part": "gpu-r03-06/gpu2", "sources": "board (redfish), host (kmsg)"}}
	detail := schemas.Sentence{ID: "step.waits_approvals", Args: map[string]any{"left": 1, "of": 2, "who": "ann"}}
	if err := w.records.PutAction(t.Context(), schemas.Action{
		ID: "two", Time: now, Created: now, Server: "gpu-r03-06", Target: "gpu-r03-06/gpu2", Kind: "power_cycle", Mode: schemas.ModeApprove, State: schemas.ActionWaiting, Attempt: 1,
		Incident: "i-1043", Reason: "i-1043", Why: "x", Ladder: []string{"power_cycle"}, DetailSentence: &detail, ApprovalsNeeded: 2, Approvals: []schemas.Approval{{By: "ann", User: "1", Time: now}},
		Rails: []schemas.Rail{{Name: "change_freeze", Value: 1, Sentence: &frozen}, {Name: "quorum", Value: 2, Limit: 2, OK: true, Sentence: &agree}},
		BlastRadius: &schemas.BlastRadius{
			Time: now, Servers: []string{"gpu-r03-06"}, GPUs: 8, GPUHours: 96.25, Unknown: 1, Owners: []string{"bea"},
			Jobs: []schemas.JobAtRisk{{ID: "job-141", Name: "llm-pretrain", Owner: "bea", GPUs: 64, GPUHours: 96.25}, {ID: "job-150"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	forPerson := schemas.Sentence{ID: "step.for_person"}
	if err := w.records.PutAction(t.Context(), schemas.Action{
		ID: "desk", Time: now, Created: now, Server: "gpu-r03-06", Target: "gpu-r03-06", Kind: "ticket", Mode: schemas.ModeEnforce, State: schemas.ActionProposed, Attempt: 1, Rung: 1,
		Incident: "i-1043", Reason: "i-1043", Why: "x", Ladder: []string{"power_cycle", "ticket"}, DetailSentence: &forPerson, Person: true, Rails: []schemas.Rail{},
	}); err != nil {
		t.Fatal(err)
	}
	shots := os.Getenv("AUSPEX_SHOTS")
	for _, c := range []struct {
		view  view
		role  string
		texts []string
	}{
		{view{1280, 800, "dark", "en"}, access.RoleAdmin, []string{
			"Mode: Approve", "1 of 2 approvals, by ann", "1 server, 8 GPUs, 2 jobs", "96.3 GPU hours", "llm-pretrain of bea", "li froze gpu-r03-06", "Override the freeze", "Views that agree",
		}},
		{view{390, 844, "light", "zh"}, access.RoleOperator, []string{"模式：审批", "已批准 1/2：ann", "1 台服务器、8 张 GPU、2 个作业", "li 已冻结 gpu-r03-06"}},
	} {
		p := open(browser, t, w, c.role, c.view)
		p.visit(w.base + "actions")
		for _, text := range c.texts {
			p.wait(text, fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
		}
		if c.role != access.RoleAdmin {
			if offered := p.eval(`document.body.innerText.includes('越过冻结') ? 'yes' : ''`); offered != "" {
				t.Error("an operator is offered to override the freeze")
			}
		}
		if broken := p.eval(`/undefined|NaN|step\.|check\.|blast\.|rail\./.test(document.querySelector('main').innerText) ? document.querySelector('main').innerText : ''`); broken != "" {
			t.Errorf("%s: %s", c.view.language, broken)
		}
		if wide := p.eval(fmt.Sprintf(tooWide, c.view.width)); wide != "" {
			t.Errorf("%d wide: %s", c.view.width, wide)
		}
		p.picture(shots, fmt.Sprintf("rails-%s-%d", c.view.language, c.view.width))
	}
	p := open(browser, t, w, access.RoleOperator, view{1280, 800, "light", "en"})
	p.visit(w.base + "incidents/i-1043")
	done := `[...document.querySelectorAll('.decide .btn')].find((b) => b.innerText === 'Done')`
	p.wait("what a person has done can be said", `Boolean(`+done+`)`)
	p.eval(done + `.click(); ''`)
	p.wait("what it was", `Boolean(document.getElementById('words'))`)
	p.eval(`(() => { const i = document.getElementById('words'); i.value = 'OPS-17'; i.dispatchEvent(new Event('input', {bubbles: true})); return ''; })()`)
	p.picture(shots, "resolve")
	p.eval(`document.querySelector('dialog .btn.primary').click(); ''`)
	p.wait("it is told", `document.body.innerText.includes('Told; it closes once control has read it.')`)
}
