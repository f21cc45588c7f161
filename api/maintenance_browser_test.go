package api_test

import (
	"fmt"
	"os"
	"testing"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/browsertest"
	"auspex/schemas"
)

// TestMaintenanceIsDeclaredOnAPage declares work on a rack, sees it on a server in the rack,
// and ends it there; who may not declare sees why.
func TestMaintenanceIsDeclaredOnAPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	checker := axe(t)
	shots := os.Getenv("AUSPEX_SHOTS")
	panel := `document.querySelector('section[aria-labelledby=maintenance-title]')`
	button := func(text string) string {
		return fmt.Sprintf(`[...(%s?.querySelectorAll('button') ?? [])].find((b) => b.textContent === %q)`, panel, text)
	}
	for _, c := range []struct {
		view                   view
		declare, end, none, on string
	}{
		{view{1280, 800, "dark", "en"}, "Declare maintenance", "End now", "No maintenance is declared.", "new supplies dc1-r01"},
		{view{390, 844, "light", "zh"}, "申报维护", "立即结束", "没有申报维护。", "new supplies dc1-r01"},
	} {
		p := open(browser, t, w, access.RoleOperator, c.view)
		p.visit(w.base + "actions")
		p.wait("no window", fmt.Sprintf(`%s?.innerText.includes(%q)`, panel, c.none))
		p.eval(button(c.declare) + `.click(); ''`)
		p.wait("the form", `document.querySelector('dialog.ask form')`)
		p.eval(`(() => {
			const set = (id, value) => { const e = document.getElementById(id); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, value); e.dispatchEvent(new Event('input', { bubbles: true })); };
			set('mnt-resources', 'dc1-r99'); set('mnt-reason', 'new supplies');
			return '';
		})()`)
		p.picture(shots, fmt.Sprintf("maintenance-form-%s-%d", c.view.language, c.view.width))
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		p.wait("a rack of nobody is refused in words", `/dc1-r99/.test(document.querySelector('dialog.ask [role=alert]')?.textContent)`)
		p.eval(`(() => { const e = document.getElementById('mnt-resources'); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, 'dc1-r01'); e.dispatchEvent(new Event('input', { bubbles: true })); return ''; })()`)
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		p.wait("the window", fmt.Sprintf(`!document.querySelector('dialog') && %s.innerText.includes(%q)`, panel, c.on))
		p.visit(w.base + "servers/gpu-r01-03")
		p.wait("it on a server of the rack", fmt.Sprintf(`%s?.innerText.includes(%q)`, panel, c.on))
		if found := p.barriers(checker, panel); found != "" {
			t.Errorf("%s: %s", c.view.language, found)
		}
		if wide := p.eval(fmt.Sprintf(tooWide, c.view.width)); wide != "" {
			t.Errorf("%d wide: %s", c.view.width, wide)
		}
		p.eval(panel + `.scrollIntoView(); ''`)
		p.picture(shots, fmt.Sprintf("maintenance-%s-%d", c.view.language, c.view.width))
		p.visit(w.base + "servers/gpu-r02-03")
		p.wait("none on a server of another rack", fmt.Sprintf(`%s?.innerText.includes(%q)`, panel, c.none))
		v := open(browser, t, w, access.RoleViewer, c.view)
		v.visit(w.base + "servers/gpu-r01-03")
		v.wait("buttons that are off for a viewer", fmt.Sprintf(`%s && (() => { const b = [...%s.querySelectorAll('button')]; return b.length === 2 && b.every((x) => x.disabled); })()`, panel, panel))
		p.visit(w.base + "servers/gpu-r01-03")
		p.wait("that it can be ended", button(c.end))
		p.eval(button(c.end) + `.click(); ''`)
		p.wait("no window any more", fmt.Sprintf(`%s?.innerText.includes(%q)`, panel, c.none))
		if list := read[apigen.MaintenanceList](t, w, "api/v1/maintenance"); list.Items[0].State != schemas.MaintenanceOver || list.Items[0].EndedBy != "on-call" {
			t.Errorf("stored: %+v", list.Items)
		}
	}
}
