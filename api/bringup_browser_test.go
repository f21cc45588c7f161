package api_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// TestAServerIsBroughtUpFromItsPage: what would be done is told before, a press does it, it goes on where it failed, and is cancelled;
// who may not is told who may.
func TestAServerIsBroughtUpFromItsPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	checker, shots := axe(t), os.Getenv("AUSPEX_SHOTS")
	for _, c := range []struct {
		view                                                          view
		discovered, will, lacks, installs, begun, failed, resume, who string
	}{
		{
			view{1440, 900, "dark", "en"},
			"discovered", "compared with what is seen", "The template asks for url.", "With ubuntu, version 1", "has begun", "the disk is read-only", "Go on at “Install”", "which engineers and admins have",
		},
		{view{390, 844, "light", "zh"}, "已发现", "将资产与所见对照", "模板需要填写 url", "用模板 ubuntu 第 1 版安装", "已开始", "the disk is read-only", "从“安装系统”继续", "工程师和管理员"},
		{view{390, 844, "dark", "en"}, "discovered", "compared with", "url", "With ubuntu", "has begun", "read-only", "Go on at", "engineers"},
		{view{1440, 900, "light", "zh"}, "已发现", "将资产", "url", "用模板 ubuntu", "已开始", "read-only", "从“安装系统”", "工程师"},
	} {
		w := gives(t, withEstate(t, 8))
		if a := w.do(t, access.RoleEngineer, http.MethodPost, "templates", "", ubuntu(t, ubuntuText)); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a := w.do(t, access.RoleEngineer, http.MethodPost, "servers", "", `{"name":"gpu-r09-01","parent":"dc1-r01"}`); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
		const panel, dialog = "section[aria-labelledby=workflows-title]", "dialog.ask"
		p := open(browser, t, w, access.RoleEngineer, c.view)
		says := func(where, text string) {
			t.Helper()
			p.wait(text, fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, where, text))
		}
		look := func(what string) {
			t.Helper()
			p.eval(`document.querySelector('` + panel + `')?.scrollIntoView({block: 'center'}); ''`)
			p.drawn()
			p.sound(what, c.view, checker)
			p.picture(shots, fmt.Sprintf("bringup-%s-%s-%s-%d", what, c.view.language, c.view.theme, c.view.width))
		}
		write := func(id, event, text string) {
			t.Helper()
			p.eval(fmt.Sprintf(
				`(() => { const e = document.getElementById(%q); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, %q); e.dispatchEvent(new Event(%q, { bubbles: true })); return ''; })()`,
				id, text, event,
			))
		}
		only := func() schemas.Workflow {
			t.Helper()
			all, _, err := workflows.New(w.db).List(t.Context(), workflows.Filter{Limit: 10})
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v %v", all, err)
			}
			return all[0]
		}
		p.visit(w.base + "servers/gpu-r09-01")
		says(panel, c.discovered)
		look("page")
		p.eval(`document.querySelector('` + panel + ` .panel-aside button').focus(); ''`)
		p.keys(kb.Enter)
		says(dialog, c.will)
		if text := p.eval(`document.querySelector('dialog.ask').innerText`); strings.Contains(text, c.installs) {
			t.Errorf("it would be installed with nothing: %q", text)
		}
		write("bup-template", "change", "ubuntu")
		says(dialog, c.lacks)
		p.wait("that it cannot be sent without what the template asks for", `document.querySelector('dialog.ask footer .primary').disabled && document.getElementById('bup-template-url')`)
		look("lacks")
		write("bup-template-url", "input", "http://images/noble.raw.gz")
		says(dialog, c.installs)
		p.wait("that it can be sent", `!document.querySelector('dialog.ask footer .primary').disabled`)
		look("ask")
		p.eval(`const b = document.querySelector('dialog.ask footer .primary'); b.click(); b.click(); ''`)
		says(panel, c.begun)
		f := only()
		if f.Type != schemas.WorkflowBringUp || f.Server != "gpu-r09-01" || f.Step("install").With["template"] != "ubuntu" || f.CreatedBy != "on-call" {
			t.Fatalf("a press made %+v", f)
		}
		p.wait("its steps", `document.querySelectorAll('`+panel+` .ladder > li').length === 4`)

		store := workflows.New(w.db)
		for _, to := range []string{schemas.WorkflowRunning, schemas.WorkflowFailed} {
			f.Steps[0].Status, f.Steps[1].Status, f.Steps[2].Status, f.Steps[2].Message = schemas.StepCompleted, schemas.StepSkipped, schemas.StepFailed, "the disk is read-only"
			if _, err := store.Move(t.Context(), "allocator", "", f.ID, to, "install: the disk is read-only", f.Steps); err != nil {
				t.Fatal(err)
			}
		}
		says(panel, c.failed)
		says(panel, c.resume)
		look("failed")
		press := func(text string) {
			t.Helper()
			p.eval(fmt.Sprintf(`[...document.querySelectorAll(%q)].find((b) => b.textContent.includes(%q)).click(); ''`, panel+" button", text))
		}
		press(c.resume)
		p.wait("it goes on", `document.querySelectorAll('`+panel+` .ladder > li.is-pending').length >= 2 && document.querySelector('`+panel+` details button')`)
		if f = only(); f.Status != schemas.WorkflowPending || f.Attempt != 2 || f.Steps[0].Status != schemas.StepCompleted {
			t.Errorf("resumed: %+v", f)
		}
		p.eval(`document.querySelector('` + panel + ` details button').click(); ''`)
		p.wait("a question", `document.querySelector('dialog.ask[open]')`)
		look("cancel")
		p.eval(`document.querySelector('dialog.ask footer .primary').click(); ''`)
		p.wait("no question any more", `!document.querySelector('dialog')`)
		says(panel, map[string]string{"en": "Go on at", "zh": "从“"}[c.view.language])
		if f = only(); f.Status != schemas.WorkflowFailed || f.Reason != workflows.Cancelled {
			t.Errorf("cancelled: %+v", f)
		}

		p.visit(w.base + "inventory?status=error")
		p.wait("its row with the button", `document.querySelector('section[aria-labelledby=servers-title] .does button')`)
		look("inventory")
		for _, line := range p.console() {
			if !strings.Contains(line, "400") { // what its template asks for was not said yet
				t.Errorf("the console said %s", line)
			}
		}

		v := open(browser, t, w, access.RoleOperator, c.view)
		v.visit(w.base + "servers/gpu-r09-01")
		v.wait("who may", fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, panel, c.who))
		if on := v.eval(`String([...document.querySelectorAll('` + panel + ` button')].filter((b) => !b.disabled).map((b) => b.textContent))`); on != "" {
			t.Errorf("an operator may press %s", on)
		}
	}
}
