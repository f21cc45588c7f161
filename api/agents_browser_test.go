package api_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/internal/cmdb"
	"auspex/internal/enrol"
	"auspex/schemas"
)

// TestAgentsAndWhoIsLetInAreOnAPage: which servers have no agent or one that is out of contact
// and since when, a token that is made and shown once, and what a revocation cuts, before it
// does; an operator is told who may.
func TestAgentsAndWhoIsLetInAreOnAPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	checker := axe(t)
	shots := os.Getenv("AUSPEX_SHOTS")
	for _, c := range []struct {
		view                                                       view
		headline, lost, refuses, create, once, cuts, revoke, wants string
	}{
		{
			view{1280, 900, "dark", "en"},
			"2 servers are out of contact with their agents", "no answer", "refuses our credentials", "New join token",
			"the only time that it is shown", "It cuts off 1 machine at once: gpu-9", "Revoke image", "which engineers and admins have",
		},
		{
			view{390, 844, "light", "zh"},
			"2 台服务器与其代理失去联系", "无应答", "拒绝我们的凭据", "新建加入令牌", "只显示这一次", "将立即切断 1 台机器：gpu-9",
			"吊销 image", "工程师和管理员",
		},
		{view{1280, 900, "light", "en"}, "2 servers are", "no answer", "refuses", "New join token", "only time", "cuts off 1 machine", "Revoke image", "engineers"},
		{view{1280, 900, "dark", "zh"}, "2 台服务器", "无应答", "拒绝", "新建加入令牌", "只显示", "切断 1 台", "吊销 image", "工程师"},
	} {
		w := agentsOf(t)
		key := w.joins(t, "image", "gpu-9")
		if err := w.deps(t).Enrol.Note(t.Context(), &enrol.Agent{Machine: key, Token: "image", Address: "10.0.0.9", Version: "v1.2.3", Refused: "more than 64 of /gpus/gpu"}); err != nil {
			t.Fatal(err)
		}
		w.proposes(t, "gpu-8")
		p := open(browser, t, w, access.RoleEngineer, c.view)
		p.visit(w.base + "agents")
		for _, text := range []string{c.headline, c.lost, c.refuses, "gpu-r01-02", "22:10", "more than 64 of /gpus/gpu", "v1.2.3", "image", "gpu-8"} {
			p.wait(text, fmt.Sprintf(`document.getElementById('main').innerText.includes(%q)`, text))
		}
		look := func(what string) {
			t.Helper()
			if wide := p.eval(fmt.Sprintf(tooWide, c.view.width)); wide != "" {
				t.Errorf("%s, %d wide: %s", what, c.view.width, wide)
			}
			p.picture(shots, fmt.Sprintf("agents-%s-%s-%s-%d", what, c.view.language, c.view.theme, c.view.width))
			if found := p.barriers(checker, "document"); found != "" {
				t.Errorf("%s in %s, %s: %s", what, c.view.language, c.view.theme, found)
			}
		}
		look("page")
		press := func(text string) {
			t.Helper()
			p.eval(fmt.Sprintf(`[...document.querySelectorAll('dialog button, main button')].find((b) => b.textContent === %q && !b.disabled).click(); ''`, text))
		}
		dialog := func(text string) {
			t.Helper()
			p.wait(text, fmt.Sprintf(`document.querySelector('dialog.ask')?.innerText.includes(%q)`, text))
		}
		// A server that is new gets a rack of the inventory, and none that is not there.
		if _, err := w.deps(t).Enrol.Inventory.Import(t.Context(), cmdb.Draft{Topology: schemas.Topology{
			Version: 1, Resources: []schemas.Resource{{ID: "dc1-r01", Kind: schemas.KindRack}},
		}}, cmdb.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		write := func(id, text string) {
			t.Helper()
			p.eval(fmt.Sprintf(
				`(() => { const e = document.getElementById(%q); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, %q); e.dispatchEvent(new Event('input', { bubbles: true })); return ''; })()`,
				id, text,
			))
		}
		p.eval(`document.querySelector('section[aria-labelledby=enrolment-title] .primary').click(); ''`)
		p.wait("the racks", `[...document.querySelectorAll('#enr-racks option')].some((o) => o.value === 'dc1-r01')`)
		write("enr-rack", "nowhere")
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		dialog(`no rack "nowhere"`)
		look("rack")
		write("enr-rack", "dc1-r01")
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		p.wait("no question any more", `!document.querySelector('dialog')`)
		if rack := w.deps(t).Enrol.Inventory.Snapshot().Rack("gpu-8"); rack != "dc1-r01" {
			t.Errorf("gpu-8 stands in %q", rack)
		}
		press(c.create)
		p.wait("the form", `document.getElementById('join-name')`)
		look("form")
		write("join-name", "lab")
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		dialog(c.once)
		look("token")
		shown := p.eval(`[...document.querySelectorAll('dialog.ask textarea')].map((x) => x.value).join('\n')`)
		plain, lines, _ := strings.Cut(shown, "\n")
		if len(plain) != 43 || !strings.Contains(lines, `:9340"`) || !strings.Contains(lines, "token_file: /etc/auspex-agent/join.token") {
			t.Errorf("for the agent's configuration: %q", shown)
		}
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		p.wait("the token in the list", `document.querySelector('section[aria-labelledby=tokens-title]').innerText.includes('lab')`)
		if p.eval(fmt.Sprintf(`String(document.body.innerHTML.includes(%q))`, plain)) != "false" {
			t.Error("the page shows the token again")
		}
		p.eval(`[...document.querySelectorAll('section[aria-labelledby=tokens-title] li')].find((x) => x.innerText.includes('image')).querySelector('button').click(); ''`)
		dialog(c.cuts)
		look("revoke")
		press(c.revoke)
		p.wait("that the machine is cut off", `!document.querySelector('dialog')`)
		if all, err := w.deps(t).Join.Admitted(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("let in: %v %v", all, err)
		}
		v := open(browser, t, w, access.RoleOperator, c.view)
		v.visit(w.base + "agents")
		v.wait("who may", fmt.Sprintf(`document.querySelector('section[aria-labelledby=tokens-title]')?.innerText.includes(%q)`, c.wants))
		if on := v.eval(`String([...document.querySelectorAll('main button')].filter((b) => !b.disabled && !b.classList.contains('older')).map((b) => b.textContent))`); on != "" {
			t.Errorf("an operator may press %s", on)
		}
	}
}
