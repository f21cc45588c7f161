package api_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/browsertest"
	"auspex/schemas"
)

// TestACauseIsCorrectedOnItsPage says on an incident that its cause was another, with
// a note, changes the verdict and withdraws it; the list and the audit follow.
func TestACauseIsCorrectedOnItsPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	p := open(browser, t, w, access.RoleOperator, view{1280, 800, "dark", "en"})
	shots := os.Getenv("AUSPEX_SHOTS")
	button := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('section[aria-labelledby=verdict-title] button')].find((b) => b.textContent === %q)`, text)
	}
	stands := func() schemas.Correction {
		return read[apigen.Incident](t, w, "api/v1/incidents/i-1042").Correction
	}
	p.visit(w.base + "incidents/i-1042")
	p.wait("the question", button("Another cause"))
	p.eval(button("Another cause") + `.click(); ''`)
	p.wait("the form", `document.querySelector('dialog.ask form select option:nth-child(3)')`)
	p.wait("the second suspect is filled in", `document.getElementById('cor-resource').value === 'dc1-r01'`)
	p.eval(`(() => {
		const set = (id, value, event) => { const e = document.getElementById(id); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, value); e.dispatchEvent(new Event(event, { bubbles: true })); };
		set('cor-resource', 'pdu-r01-b', 'input'); set('cor-fault', 'power.psu_failure', 'change'); set('cor-note', 'B was out\nand A was not', 'input');
		return '';
	})()`)
	p.wait("names to choose from", `[...document.querySelectorAll('#cor-names option')].some((o) => o.value === 'pdu-r01-b')`)
	p.picture(shots, "correct-dark-en")
	p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
	p.wait("a part that cannot have the fault is refused in words", `/pdu-r01-b is a pdu/.test(document.querySelector('dialog.ask [role=alert]')?.textContent)`)
	p.eval(`(() => { const e = document.getElementById('cor-fault'); e.value = 'power.feed_loss'; e.dispatchEvent(new Event('change', { bubbles: true })); return ''; })()`)
	p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
	p.wait("the verdict", `!document.querySelector('dialog') && /The cause was another:\s*pdu-r01-b/.test(document.querySelector('section[aria-labelledby=verdict-title]').innerText)`)
	p.picture(shots, "corrected-dark-en")
	if c := stands(); c.Verdict != schemas.VerdictCause || c.Resource != "pdu-r01-b" || c.Fault != "power.feed_loss" ||
		c.Note != "B was out\nand A was not" || c.Author != "on-call" {
		t.Errorf("stored: %+v", c)
	}
	p.visit(w.base + "incidents")
	p.wait("its mark in the list", `document.querySelectorAll('.judged').length === 1`)
	p.wait("the record", `/1 of 1|0 of 1/.test(document.querySelector('section[aria-labelledby=hindsight-title]').innerText)`)
	p.visit(w.base + "incidents/i-1042")
	p.wait("a change is offered", button("Change"))
	p.eval(button("Withdraw") + `.click(); ''`)
	p.wait("no verdict", button("Right"))
	p.eval(button("Right") + `.click(); ''`)
	p.wait("right", `/The cause is right/.test(document.body.innerText)`)
	if c := stands(); c.Revision != 3 || c.Verdict != schemas.VerdictRight || c.Resource != "pdu-r01-a" {
		t.Errorf("stored: %+v", c)
	}
	p.visit(w.base + "actions")
	p.wait("the audit", `/incident i-1042 had another cause/.test(document.getElementById('audit-title').closest('section').innerText)`)
	if e := p.console(); len(e) != 1 || !strings.Contains(e[0], "400") { // the refusal
		t.Errorf("the console said %q", e)
	}
}

func TestAViewerSeesAVerdictAndGivesNone(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	p := open(browser, t, w, access.RoleViewer, view{1280, 800, "light", "zh"})
	p.visit(w.base + "incidents/i-1042")
	p.wait("buttons that are off", `(() => { const b = [...document.querySelectorAll('section[aria-labelledby=verdict-title] button')]; return b.length === 3 && b.every((x) => x.disabled); })()`)
	p.picture(os.Getenv("AUSPEX_SHOTS"), "verdict-viewer-light-zh")
}

// TestHowRightTheCausesAreIsDrawn looks at the record of causes in both languages, on
// a phone too, with few verdicts and with many.
func TestHowRightTheCausesAreIsDrawn(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	checker := axe(t)
	panel := `document.querySelector('section[aria-labelledby=hindsight-title]')`
	for _, c := range []struct {
		judged int
		want   map[string]string
	}{
		{0, map[string]string{"en": "Nobody has judged", "zh": "还没有人判断"}},
		{8, map[string]string{"en": "6 of 8 judged incidents named the right cause: too few", "zh": "数量太少"}},
		{40, map[string]string{"en": "32 of 40 judged incidents", "zh": "40 个事件中，32 个"}},
	} {
		judge(t, w, c.judged)
		for _, v := range []view{{1280, 800, "dark", "en"}, {1280, 800, "light", "zh"}, {390, 844, "light", "en"}} {
			p := open(browser, t, w, access.RoleViewer, v)
			p.visit(w.base + "incidents")
			p.wait("the record", fmt.Sprintf(`%s?.innerText.includes(%q)`, panel, c.want[v.language]))
			if n := p.eval(panel + `.querySelectorAll('.curve circle').length + ''`); (n != "0") != (c.judged > 0) {
				t.Errorf("%d judged: %s dots", c.judged, n)
			}
			if found := p.barriers(checker, panel); found != "" {
				t.Errorf("%d %s: %s", c.judged, v.language, found)
			}
			if wide := p.eval(fmt.Sprintf(tooWide, v.width)); wide != "" {
				t.Errorf("%d wide: %s", v.width, wide)
			}
			p.eval(panel + `.scrollIntoView(); ''`)
			p.drawn()
			p.picture(os.Getenv("AUSPEX_SHOTS"), fmt.Sprintf("hindsight-%d-%s-%s-%d", c.judged, v.theme, v.language, v.width))
			if e := p.console(); len(e) > 0 {
				t.Errorf("the console said %q", e)
			}
		}
	}
}
