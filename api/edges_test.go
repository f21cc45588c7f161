package api_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/browsertest"
	"auspex/internal/store/audit"
	"auspex/internal/store/learned"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// edges keeps proposals as the product does, with versions that nobody reads.
type edges struct{ *learned.Store }

func (e edges) Decide(ctx context.Context, id string, d schemas.EdgeDecision) (schemas.EdgeProposal, error) {
	return e.Store.Decide(ctx, id, d, func([]byte, []schemas.EdgeProposal) ([]byte, error) { return []byte(`{"format":1}`), nil })
}

// proposed starts a console over three proposals: of two faults, of one, and of none.
func proposed(t *testing.T) *world {
	t.Helper()
	w := start(t, true, func(_ *api.Config, d *api.Deps) {
		d.Learned = learned.New(d.DB.(*sqldb.DB)).Active
	})
	w.proposesEdges(t)
	return w
}

// proposesEdges stores the three proposals.
func (w *world) proposesEdges(t *testing.T) {
	t.Helper()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	cause := func(fault, way string) schemas.EdgeCause {
		return schemas.EdgeCause{
			Fault: fault, Kinds: []string{"crac", "rack"}, Type: "humidity.high", Way: way, Cases: 16, Shown: 14, SharesSum: 9.8, LagsSumS: 4200,
			Chance: 0.007, Lift: 98.1, Gain: 640, Shows: 0.54, Share: 0.69, LagS: 300, Examples: []schemas.EdgeExample{{
				Time: at, Part: "gpu-r01-03", Event: "e1", Effects: []string{"e2", "e3", "e4"}, Shown: 3, Of: 4, LagS: 280,
			}},
		}
	}
	var list []schemas.EdgeProposal
	for i, causes := range [][]schemas.EdgeCause{
		{cause("cooling.air_supply", "cools:server"), cause("power.feed_loss", "feeds:server > down:gpu")}, {cause("host.crash", "")}, {},
	} {
		list = append(list, schemas.EdgeProposal{
			ID: fmt.Sprint("e-", i), Cause: "crac.failure", Effect: fmt.Sprint("humidity.high", i), Over: []schemas.EdgeShare{}, LagS: 300, Gain: float64(100 - i),
			Times: 14, Events: 1106, From: at, To: at.Add(700 * time.Hour), Found: at.Add(time.Duration(700+i%2) * time.Hour), Causes: causes,
		})
	}
	if _, err := learned.New(w.db).Propose(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

func TestProposalsAreReadByAllAndDecidedByThoseWhoMay(t *testing.T) {
	w := proposed(t)
	path := "api/v1/learning/edges/e-0/decisions"
	for _, c := range []struct {
		name, role, path, body string
		status                 int
		code                   string
	}{
		{"nobody", "", path, `{"decision":"accepted","reason":"x"}`, 401, "login_needed"},
		{"a viewer", access.RoleViewer, path, `{"decision":"accepted","reason":"x"}`, 403, "no_permission"},
		{"without a reason", access.RoleOperator, path, `{"decision":"accepted","reason":"  "}`, 400, "bad_decision"},
		{"a decision of nobody", access.RoleOperator, path, `{"decision":"maybe","reason":"x"}`, 400, "bad_body"},
		{"a fault of a refusal", access.RoleOperator, path, `{"decision":"declined","reason":"x","fault":"host.crash"}`, 400, "bad_decision"},
		{"taken back before it is accepted", access.RoleOperator, path, `{"decision":"withdrawn","reason":"x"}`, 409, "decided"},
		{"a proposal of nobody", access.RoleOperator, "api/v1/learning/edges/e-9/decisions", `{"decision":"declined","reason":"x"}`, 404, "not_found"},
		{"declined", access.RoleOperator, path, `{"decision":"declined","reason":"x"}`, 201, ""},
		{"accepted after all", access.RoleOperator, path, `{"decision":"accepted","reason":"y"}`, 201, ""},
		{"twice", access.RoleAdmin, path, `{"decision":"accepted","reason":"z"}`, 409, "decided"},
		{"taken back", access.RoleAdmin, path, `{"decision":"withdrawn","reason":"z"}`, 201, ""},
	} {
		a := w.send(t, http.MethodPost, c.path, c.role, body(c.body))
		if a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		} else if c.code != "" && a.problem(t).Code != c.code {
			t.Errorf("%s: %+v", c.name, a.problem(t))
		}
	}
	list := read[apigen.EdgeProposalList](t, w, "api/v1/learning/edges")
	if len(list.Items) != 3 || list.Parameters != 2 || list.Items[2].State != schemas.EdgeWithdrawn || list.Items[2].Decision.Reason != "z" {
		t.Errorf("%d in force: %+v", list.Parameters, list.Items)
	}
	if open := read[apigen.EdgeProposalList](t, w, "api/v1/learning/edges?state=open"); len(open.Items) != 2 {
		t.Errorf("open: %+v", open.Items)
	}
	if n, err := audit.Verify(t.Context(), w.db); err != nil || n < 3 {
		t.Errorf("%d rows in the audit, error %v", n, err)
	}
}

// TestAProposalIsAcceptedOnThePage accepts a proposal for the second of its faults and takes
// it back, in both languages and on a phone.
func TestAProposalIsAcceptedOnThePage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	shots, checker := os.Getenv("AUSPEX_SHOTS"), axe(t)
	for _, v := range []view{{1440, 900, "dark", "en"}, {390, 844, "light", "zh"}} {
		words := map[string][]string{
			"en": {"Accept", "Take back", "Decline"}, "zh": {"接受", "撤回", "拒绝"},
		}[v.language]
		w := proposed(t)
		p := open(browser, t, w, access.RoleOperator, v)
		panel := `document.querySelector('section[aria-labelledby=edges-title]')`
		button := func(in, text string) string {
			return fmt.Sprintf(`[...(%s)?.querySelectorAll('button') ?? []].find((b) => b.textContent === %q)`, in, text)
		}
		press := func(what, in, text string) {
			t.Helper()
			p.wait(what, button(in, text))
			p.eval(button(in, text) + `.click(); ''`)
		}
		decide := func(picture string) {
			t.Helper()
			p.wait("the dialog", `document.getElementById('edge-reason')`)
			p.eval(`(() => {
				const f = document.getElementById('edge-fault');
				if (f) { f.value = 'power.feed_loss'; f.dispatchEvent(new Event('change', { bubbles: true })); }
				const e = document.getElementById('edge-reason'); e.value = 'seen by hand'; e.dispatchEvent(new Event('input', { bubbles: true }));
				return '';
			})()`)
			p.drawn()
			p.picture(shots, fmt.Sprintf("%s-%s-%s-%d", picture, v.theme, v.language, v.width))
			p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
			p.wait("it is closed", `!document.querySelector('dialog')`)
		}
		p.visit(w.base + "incidents")
		p.wait("three proposals", panel+`?.querySelectorAll('.edge').length === 3`)
		if found := p.barriers(checker, panel); found != "" {
			t.Errorf("%s: %s", v.language, found)
		}
		press("it can be accepted", panel, words[0])
		decide("edge-accept")
		press("it can be taken back", panel, words[1])
		if got, err := learned.New(w.db).Proposal(t.Context(), "e-0"); err != nil || got.State != schemas.EdgeAccepted ||
			got.Decision.Fault != "power.feed_loss" || got.Decision.Reason != "seen by hand" || got.Decision.Author != "on-call" {
			t.Errorf("stored: %+v, error %v", got.Decision, err)
		}
		p.eval(panel + `.scrollIntoView(); ''`)
		decide("edge-take-back")
		p.wait("it can be accepted again", panel+`.querySelectorAll('.edge').length === 3 && !(`+button(panel, words[1])+`)`)
		p.eval(panel + `.scrollIntoView(); ''`)
		p.drawn()
		p.picture(shots, fmt.Sprintf("edges-%s-%s-%d", v.theme, v.language, v.width))
		if wide := p.eval(fmt.Sprintf(tooWide, v.width)); wide != "" {
			t.Errorf("%d wide: %s", v.width, wide)
		}
		p.visit(w.base + "actions")
		p.wait("the audit", `/e-0/.test(document.getElementById('audit-title').closest('section').innerText)`)
		if e := p.console(); len(e) > 0 {
			t.Errorf("the console said %q", e)
		}
	}
}

func TestAViewerSeesProposalsAndDecidesNone(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := proposed(t)
	p := open(browser, t, w, access.RoleViewer, view{1280, 800, "light", "en"})
	p.visit(w.base + "incidents")
	p.wait("buttons that are off", `(() => { const b = [...document.querySelectorAll('section[aria-labelledby=edges-title] button')]; return b.length === 5 && b.every((x) => x.disabled); })()`)
}

func TestADialogThatGoesLeavesTheNextOneOpen(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := proposed(t)
	p := open(browser, t, w, access.RoleOperator, view{1280, 800, "light", "en"})
	p.visit(w.base + "incidents")
	p.wait("buttons", `document.querySelector('.edge .decide button')`)
	got := p.eval(`(async () => { // between two frames
		const ask = () => document.querySelector('.edge .decide button').click();
		const until = async (there) => { for (let i = 0; i < 100 && Boolean(document.querySelector('dialog')) !== there; i++) await Promise.resolve(); };
		const frame = () => new Promise((r) => requestAnimationFrame(r));
		ask(); await until(true);
		await frame();
		document.querySelector('dialog.ask footer button').click(); await until(false);
		ask(); await until(true);
		for (let i = 0; i < 4; i++) await frame();
		return document.querySelector('dialog[open]') ? 'open' : 'gone';
	})()`)
	if got != "open" {
		t.Errorf("the second dialog is %s", got)
	}
}
