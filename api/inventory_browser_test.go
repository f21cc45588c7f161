package api_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/schemas"
)

// TestTheInventoryIsOnAPage: what is there by its state, what it was, what two sources say differently and
// no longer do, and what a sweep has found: registered, validated and decided with a press, by who may.
func TestTheInventoryIsOnAPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	checker, shots := axe(t), os.Getenv("AUSPEX_SHOTS")
	for _, c := range []struct {
		view                                                                  view
		headline, added, left, decided, settled, register, registered, begins string
	}{
		{
			view{1280, 900, "dark", "en"},
			"1 conflict waits for a decision.", "added", "The left is right", "decided by on-call", "is none any more since", "Register a server", "gpu-r09-01 is registered",
			"A validation has begun.",
		},
		{
			view{390, 844, "light", "zh"}, "1 项冲突待决定", "新增", "左侧正确", "on-call 于", "起不再冲突", "登记服务器", "已登记 gpu-r09-01", "验证已开始",
		},
		{
			view{1280, 900, "light", "zh"}, "1 项冲突待决定", "新增", "左侧正确", "on-call 于", "起不再冲突", "登记服务器", "已登记 gpu-r09-01", "验证已开始",
		},
		{
			view{768, 1024, "dark", "en"},
			"1 conflict waits for a decision.", "added", "The left is right", "decided by on-call", "is none any more since", "Register a server", "gpu-r09-01 is registered",
			"A validation has begun.",
		},
	} {
		w := gives(t, withEstate(t, 8))
		w.contradicts(t, "S2")
		w.settled(t)
		d := w.asks(t)
		w.finds(t, d.ID, 7, schemas.Find{
			ID: "f1", SeenAt: time.Now(), Number: 1, Address: "10.0.0.2:443", Protocol: "redfish", Result: schemas.FindFound,
			Hardware: schemas.Hardware{Manufacturer: "NVIDIA", Model: "DGX H100", SerialNumber: "S0901", GPUs: []schemas.FoundPart{{Name: "GPU0", Model: "H100"}}},
		}, schemas.Find{ID: "f2", SeenAt: time.Now(), Number: 3, Address: "10.0.0.4:443", Protocol: "redfish", Result: schemas.FindRefused, Message: "it refuses the credential"})
		p := open(browser, t, w, access.RoleEngineer, c.view)
		p.visit(w.base + "inventory")
		says := func(where, text string) {
			t.Helper()
			p.wait(text, fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, where, text))
		}
		look := func(what string) {
			t.Helper()
			p.sound(what, c.view, checker)
			p.picture(shots, fmt.Sprintf("inventory-%s-%s-%s-%d", what, c.view.language, c.view.theme, c.view.width))
		}
		press := func(where, text string) {
			t.Helper()
			p.wait("a button "+text, fmt.Sprintf(`[...document.querySelectorAll(%q)].some((b) => b.textContent.includes(%q) && !b.disabled)`, where+" button", text))
			p.eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].find((b) => b.textContent.includes(%q)).click(); ''`, where+" button", text))
		}
		says("h1", c.headline)
		says("section[aria-labelledby=discovery-title]", "S0901")
		says("section[aria-labelledby=discovery-title]", "10.0.0.4:443")
		press("section[aria-labelledby=assets-title]", "dc1-r01")
		says("section[aria-labelledby=assets-title] .versions", c.added)
		look("page")

		press("section[aria-labelledby=conflicts-title]", c.left)
		look("decide")
		p.eval(`document.querySelector('dialog .primary').click(); ''`)
		p.wait("no conflict is open", `!document.querySelector('section[aria-labelledby=conflicts-title] li.conflict')`)
		p.eval(`[...document.querySelectorAll('section[aria-labelledby=conflicts-title] [role=radio]')][1].click(); ''`)
		says("section[aria-labelledby=conflicts-title]", c.decided)
		p.eval(`[...document.querySelectorAll('section[aria-labelledby=conflicts-title] [role=radio]')][2].click(); ''`)
		says("section[aria-labelledby=conflicts-title]", c.settled)
		if is := p.eval(`(() => { const all = document.querySelectorAll('section[aria-labelledby=conflicts-title] li.conflict'); return all.length + all[0].innerText + all[0].querySelectorAll('button').length; })()`); !strings.HasPrefix(is, "1") ||
			!strings.Contains(is, "gpu-r01-02") || !strings.Contains(is, "S9") || !strings.HasSuffix(is, "0") {
			t.Errorf("settled: %s", is)
		}
		look("settled")

		press("section[aria-labelledby=discovery-title] .find-row", c.register)
		p.wait("the form", `document.getElementById('inv-name')`)
		p.eval(`(() => { const f = document.getElementById('inv-name'); f.value = 'gpu-r09-01'; f.dispatchEvent(new Event('input', { bubbles: true })); return ''; })()`)
		look("register")
		p.eval(`document.querySelector('dialog .primary').click(); ''`)
		says(".headline", c.registered)
		p.eval(`[...document.querySelectorAll('section[aria-labelledby=servers-title] [role=radio]')][1].click(); ''`)
		p.wait("it alone is discovered and shown", `document.querySelector('section[aria-labelledby=servers-title] tbody tr')?.innerText.includes('gpu-r09-01')`)
		look("discovered")
		press("section[aria-labelledby=servers-title] .does", map[string]string{"en": "Validate", "zh": "验证"}[c.view.language])
		says("section[aria-labelledby=servers-title]", c.begins)
		for _, line := range p.console() {
			t.Errorf("the console said %s", line)
		}

		v := open(browser, t, w, access.RoleViewer, c.view)
		v.visit(w.base + "inventory")
		v.wait("the servers", `document.querySelector('section[aria-labelledby=servers-title] tbody')`)
		if on := v.eval(`String([...document.querySelectorAll('.ask-for button, .does button, #main .btn.small:not(.older)')].filter((b) => !b.disabled).map((b) => b.textContent))`); on != "" {
			t.Errorf("a viewer may press %s", on)
		}
	}
}
