package api_test

import (
	"fmt"
	"os"
	"testing"

	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/internal/cmdb"
	"auspex/internal/enrol"
	"auspex/schemas"
)

// TestAProposalIsDecidedOnAPage shows what an agent says with both sides of its conflict,
// accepts it with a reason, and shows who may not why.
func TestAProposalIsDecidedOnAPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	checker := axe(t)
	shots := os.Getenv("AUSPEX_SHOTS")
	panel := `document.querySelector('section[aria-labelledby=enrolment-title]')`
	for _, c := range []struct {
		view                      view
		accept, conflict, noPlace string
	}{
		{view{1280, 800, "dark", "en"}, "Accept gpu-7", "conflict", "has no place in the inventory"},
		{view{390, 844, "light", "zh"}, "接受 gpu-7", "冲突", "在资产清单中没有位置"},
	} {
		w := start(t, true)
		desk := w.deps(t).Enrol
		known := schemas.Topology{Version: 1, Resources: []schemas.Resource{
			{ID: "gpu-7", Kind: "server", Attrs: schemas.AttrsOf(map[string]string{"serial": "SN7", "agent_address": "gpu-7:9339"})},
			{ID: "gpu-7/gpu0", Kind: "gpu", Parent: "gpu-7", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:1b:00.0", "uuid": "GPU-1"})},
		}}
		if _, err := desk.Inventory.Import(t.Context(), cmdb.Draft{Topology: known}, cmdb.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		offer := func() enrol.Proposal {
			t.Helper()
			p := enrol.Compare(desk.Inventory.Snapshot(), enrol.Who{Server: "gpu-7", Address: "gpu-7:9339"}, &enrol.Description{
				Digest: "d", Serial: "SN7", Product: "DGXH100", GPUs: []enrol.Part{{Name: "gpu0", PCI: "0000:1b:00.0", UUID: "GPU-2"}},
				Disks: []enrol.Part{{Name: "nvme0", Serial: "S6CKNE0T", Model: "MZQL21T9HCJR"}},
			})
			if _, err := desk.Offer(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		p := open(browser, t, w, access.RoleEngineer, c.view)
		p.visit(w.base + "actions")
		p.wait("the page", `document.querySelector('section[aria-labelledby=ladders-title]')`)
		if p.eval(`String(Boolean(`+panel+`))`) != "false" {
			t.Error("a panel though nothing waits")
		}
		w.joins(t, "one", "gpu-9")
		want := offer()
		p.visit(w.base + "actions")
		for _, text := range []string{"GPU-1", "GPU-2", c.conflict, "gpu-7/nvme0", "serial=S6CKNE0T", "gpu-9", c.noPlace} {
			p.wait(text, fmt.Sprintf(`%s?.innerText.includes(%q)`, panel, text))
		}
		if found := p.barriers(checker, panel); found != "" {
			t.Errorf("%s: %s", c.view.language, found)
		}
		if wide := p.eval(fmt.Sprintf(tooWide, c.view.width)); wide != "" {
			t.Errorf("%d wide: %s", c.view.width, wide)
		}
		p.eval(panel + `.scrollIntoView(); ''`)
		p.picture(shots, fmt.Sprintf("enrolment-%s-%d", c.view.language, c.view.width))
		v := open(browser, t, w, access.RoleOperator, c.view)
		v.visit(w.base + "actions")
		v.wait("buttons that are off for an operator", fmt.Sprintf(`%s && (() => { const b = [...%s.querySelectorAll('button')]; return b.length === 2 && b.every((x) => x.disabled); })()`, panel, panel))
		p.eval(fmt.Sprintf(`[...%s.querySelectorAll('button')].find((b) => b.textContent === %q).click(); ''`, panel, c.accept))
		p.wait("the question", `document.querySelector('dialog.ask form')`)
		p.eval(`(() => { const e = document.getElementById('enr-reason'); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, 'board replaced'); e.dispatchEvent(new Event('input', { bubbles: true })); return ''; })()`)
		p.picture(shots, fmt.Sprintf("enrolment-ask-%s-%d", c.view.language, c.view.width))
		p.eval(`document.querySelector('dialog.ask .primary').click(); ''`)
		p.wait("no proposal any more", fmt.Sprintf(`!document.querySelector('dialog') && !%s?.innerText.includes('gpu-7')`, panel))
		if got, err := desk.Get(t.Context(), want.ID); err != nil || got.State != enrol.Accepted || got.Why != "board replaced" {
			t.Errorf("stored: %+v %v", got, err)
		}
		if r, _ := desk.Inventory.Snapshot().Resource("gpu-7/gpu0"); r.Attrs.Get("uuid") != "GPU-2" {
			t.Errorf("the inventory has %v", r.Attrs)
		}
	}
}
