package api_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/browsertest"
	"auspex/internal/store/allocations"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// fit gives gpu-r03-01 to who asks for one server, and to all others nothing.
func (w *world) fit(wish *schemas.Wish) (schemas.Choice, error) {
	say := func(id string, args map[string]any) schemas.Sentence { return schemas.Sentence{ID: id, Args: args} }
	lost := []schemas.NotChosen{
		{Reason: say("fit.risk", map[string]any{"server": "gpu-r03-05", "part": "gpu-r03-05/fan3", "risk": 62, "max": 10, "failure": "x"}), Count: 1, Examples: []string{"gpu-r03-05"}},
		{Reason: say("fit.taken", map[string]any{"server": "gpu-r01-01"}), Count: 61, Examples: []string{"gpu-r01-01", "gpu-r01-02", "gpu-r02-01", "gpu-r02-02"}},
	}
	if wish.Servers != 1 {
		return schemas.Choice{}, &schemas.NoFitError{Choice: schemas.Choice{
			Servers: []schemas.Pick{}, RunnersUp: []schemas.Pick{}, Lost: lost,
			Nearest: []schemas.Sentence{say("fit.miss_servers", map[string]any{"free": 1, "need": wish.Servers}), say("fit.miss_without", map[string]any{"constraint": "together"})},
		}}
	}
	pick := func(name string, why ...schemas.Sentence) schemas.Pick {
		p := schemas.Pick{Server: name, ServerID: w.inv.Snapshot().ID(name), GPUs: []string{}, GPUIDs: []string{}}
		for g := range 8 {
			gpu := fmt.Sprintf("%s/gpu%d", name, g)
			p.GPUs, p.GPUIDs = append(p.GPUs, gpu), append(p.GPUIDs, w.inv.Snapshot().ID(gpu))
		}
		p.Reasons = append([]schemas.Sentence{say("fit.is_health", map[string]any{"health": "ok"}), say("fit.is_safe", nil), say("fit.is_never_failed", nil), say("fit.is_whole", nil)}, why...)
		return p
	}
	return schemas.Choice{
		Servers: []schemas.Pick{pick("gpu-r03-01")}, RunnersUp: []schemas.Pick{pick("gpu-r03-02", say("fit.less_packed", map[string]any{"server": "gpu-r03-02"}))}, Lost: lost,
	}, nil
}

// allots fills a console: a team has a server that is in use, somebody one that is being made
// ready, a script's user three GPUs that wait, and one allocation was cancelled.
func allots(t *testing.T) (*world, map[string]schemas.Allocation) {
	t.Helper()
	var w *world
	free := []schemas.Pick{{Server: "gpu-r03-07", GPUs: []string{}, GPUIDs: []string{}, Reasons: []schemas.Sentence{}}}
	w = gives(t, withEstate(t, 8), func(_ *api.Config, d *api.Deps) {
		n := d.Allocator.(*named)
		n.fits, n.free = func(wish *schemas.Wish) (schemas.Choice, error) { return w.fit(wish) }, free
	})
	for _, name := range []string{"li", "bo", "jo"} {
		w.person(t, name, access.RoleEngineer)
	}
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"vision","members":["bo"]}`)
	got[schemas.Template](t, w.do(t, access.RoleEngineer, http.MethodPost, "templates", "", newTemplate), http.StatusCreated)
	out := make(map[string]schemas.Allocation)
	give := func(what, who, text string) schemas.Allocation {
		t.Helper()
		a := w.send(t, http.MethodPost, "api/v1/allocations", access.RoleEngineer, body(fmt.Sprintf(`{"user_id":%q,"purpose":%q,%s}`, who, what, text)))
		out[what] = decode[apigen.CreatedAllocation](t, a, http.StatusCreated).Allocation
		return out[what]
	}
	end := fmt.Sprintf(`"end_time":%q`, time.Now().Add(72*time.Hour).UTC().Format(time.RFC3339))
	used := give("train the encoder", "bo", `"server_ids":["gpu-r02-01","gpu-r02-02","gpu-r02-03","gpu-r02-04"],`+end)
	ready := give("evaluation", "li", `"server_id":"gpu-r01-01"`)
	give("notebook", "jo", `"gpu_ids":["gpu-r01-03/gpu0","gpu-r01-03/gpu1","gpu-r01-03/gpu2"],`+end)
	gone := give("gone", "li", `"server_id":"gpu-r04-01"`)
	given, flows := allocations.New(w.db), workflows.New(w.db)
	flow := func(a *schemas.Allocation, status, kind string, steps ...schemas.WorkflowStep) {
		t.Helper()
		f, err := flows.Create(t.Context(), "allocator", schemas.Workflow{AllocationID: a.ID, ServerID: a.ServerID, Type: kind, Exclusive: true, Steps: slices.Clone(steps)})
		if err == nil {
			_, err = flows.Move(t.Context(), "allocator", "", f.ID, status, "", steps)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	flow(&ready, schemas.WorkflowRunning, schemas.WorkflowDeploy,
		schemas.WorkflowStep{Name: "idle", Status: schemas.StepCompleted, Message: "nobody computes on gpu-r01-01"},
		schemas.WorkflowStep{Name: "power_on", Status: schemas.StepRunning, Message: "the BMC was asked, and gpu-r01-01 is off"},
		schemas.WorkflowStep{Name: "health", Status: schemas.StepPending})
	if _, err := given.Activate(t.Context(), "allocator", used.ID); err != nil {
		t.Fatal(err)
	}
	decode[schemas.Allocation](t, w.send(t, http.MethodDelete, "api/v1/allocations/"+gone.ID, "li", nil), http.StatusOK)
	left := give("left", "li", `"server_id":"gpu-r05-05"`)
	decode[schemas.Allocation](t, w.send(t, http.MethodPost, "api/v1/allocations/"+left.ID+"/stop", access.RoleAdmin, body(`{"force":true}`)), http.StatusAccepted)
	if _, err := allocations.New(w.db).Break(t.Context(), "allocator", "gpu-r02-03/gpu5", "incident i-1044", "it fell off the bus", nil); err != nil {
		t.Fatal(err)
	}
	return w, out
}

// TestAllocationsAreOnAPage: who has what, what is done for it, what a request would get and why
// not more, before it is sent; an end asks first; who may not is told who may.
func TestAllocationsAreOnAPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	checker := axe(t)
	shots := os.Getenv("AUSPEX_SHOTS")
	for _, c := range []struct {
		view                                                                                   view
		headline, pending, cancelled, off, instead, whom, fits, none, nearest, lost, gave, end string
		means, ended, wants                                                                    string
	}{
		{
			view{1280, 900, "dark", "en"},
			"3 allocations hold 43 of 512 GPUs; 8 GPUs are stranded.", "being made ready", "cancelled", "gpu-r01-01 is off", "Free instead: gpu-r03-07", "Say for which user",
			"1 server would be given, with 8 GPUs", "Nothing fits", "Without being together it would fit", "gpu-r01-01 is taken for a part of that time. Likewise gpu-r01-02, gpu-r02-01 and 58 more",
			"1 server with 8 GPUs given to li", "End “train the encoder”", "loses all 4 servers at once", "what it held is being cleaned", "which engineers and admins have",
		},
		{
			view{390, 844, "light", "zh"},
			"3 项分配占用 512 张 GPU 中的 43 张", "准备中", "已取消", "gpu-r01-01 is off", "可改用：gpu-r03-07", "请填写使用者", "将分配 1 台服务器，共 8 张 GPU", "没有符合的资源", "去掉集中要求即可满足",
			"gpu-r01-01：该时段内已被占用", "已分配给 li", "结束“train the encoder”", "失去全部 4 台服务器", "正在清理", "工程师和管理员",
		},
		{
			view{1280, 900, "light", "en"},
			"3 allocations hold 43 of", "being made ready", "cancelled", "is off", "Free instead", "Say for", "1 server would", "Nothing fits", "Without being", "is taken", "given to li", "End “train", "loses all",
			"being cleaned", "engineers",
		},
		{
			view{768, 1024, "dark", "zh"},
			"3 项分配", "准备中", "已取消", "is off", "可改用", "请填写", "将分配 1 台", "没有符合", "去掉集中", "已被占用", "已分配给 li", "结束“train", "失去全部", "正在清理", "工程师",
		},
	} {
		w, _ := allots(t)
		p := open(browser, t, w, access.RoleEngineer, c.view)
		p.visit(w.base + "allocations")
		says := func(where, text string) {
			t.Helper()
			p.wait(text, fmt.Sprintf(`document.querySelector(%q)?.innerText.includes(%q)`, where, text))
		}
		says("section[aria-labelledby=stranded-title]", "gpu-r05-05")
		for _, text := range []string{c.headline, "train the encoder", "evaluation", "vision", c.pending, "gpu-r02-03", c.cancelled} {
			says("#main", text)
		}
		says("section[aria-labelledby=told-title]", map[string]string{"en": "hardware is ill train the encoder", "zh": "硬件有故障 train the encoder"}[c.view.language])
		look := func(what string) {
			t.Helper()
			p.sound(what, c.view, checker)
			p.picture(shots, fmt.Sprintf("allocations-%s-%s-%s-%d", what, c.view.language, c.view.theme, c.view.width))
		}
		row := func(purpose, button string) {
			t.Helper()
			p.eval(fmt.Sprintf(`(() => { const r = [...document.querySelectorAll('.allocations tr.row')].find((r) => r.innerText.includes(%q)); r.querySelectorAll(%q)[0].click(); return ''; })()`, purpose, button))
		}
		write := func(id, event, text string) {
			t.Helper()
			p.eval(fmt.Sprintf(
				`(() => { const e = document.getElementById(%q); Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, %q); e.dispatchEvent(new Event(%q, { bubbles: true })); return ''; })()`,
				id, text, event,
			))
		}
		send := func() { t.Helper(); p.eval(`document.querySelector('dialog.ask footer .primary').click(); ''`) }
		p.drawn()
		look("page")
		row("evaluation", ".fold")
		says("tr.detail", c.off)
		row("train the encoder", ".fold")
		says("#main", c.instead)
		look("detail")
		p.eval(`document.querySelector('section[aria-labelledby=tenants-title] .btn').click(); ''`)
		says("section[aria-labelledby=tenants-title] table", "notebook")
		p.eval(`document.querySelector('section[aria-labelledby=tenants-title]').scrollIntoView(); ''`)
		look("tenants")

		p.eval(`document.querySelector('.ask-for .primary').click(); ''`)
		says("dialog.ask .found", c.whom)
		write("alo-user", "input", "li")
		says("dialog.ask .found", c.fits)
		for _, text := range []string{"gpu-r03-01", "gpu-r03-02", c.lost} {
			says("dialog.ask .found", text)
		}
		look("form")
		write("alo-count", "input", "9")
		write("alo-together", "change", "rack")
		says("dialog.ask .found", c.none)
		says("dialog.ask .found", c.nearest)
		look("none")
		if off := p.eval(`String(document.querySelector('dialog.ask footer .primary').disabled)`); off != "true" {
			t.Error("what does not fit can be sent")
		}
		// What is typed on the way to an answer is not undone by it: the last question counts.
		write("alo-count", "input", "1")
		write("alo-count", "input", "7")
		write("alo-count", "input", "1")
		write("alo-purpose", "input", "second run")
		write("alo-template", "change", "plain")
		p.wait("its versions", `document.getElementById('alo-template-version') && document.querySelector('dialog.ask .found[aria-busy=false]') && !document.querySelector('dialog.ask footer .primary').disabled`)
		look("template")
		p.wait("that it can be sent", `!document.querySelector('dialog.ask footer .primary').disabled`)
		p.eval(`const b = document.querySelector('dialog.ask footer .primary'); b.click(); b.click(); ''`)
		says("#main", c.gave)
		says("section[aria-labelledby=live-title]", "second run")
		if all, _, err := allocations.New(w.db).List(t.Context(), allocations.Filter{Live: true, Limit: 10}); err != nil || len(all) != 4 || all[0].User != "li" || all[0].EndTime.IsZero() || all[0].Template != "plain" || all[0].TemplateVersion != 1 {
			t.Errorf("a double click gave %+v %v", all, err)
		}

		row("train the encoder", ".does .btn:nth-of-type(2)")
		says("dialog.ask", c.means)
		look("end")
		if text := p.eval(`document.querySelector('dialog.ask footer .primary').textContent`); text[:len(c.end)] != c.end {
			t.Errorf("the button says %q", text)
		}
		write("alo-report", "input", "fan3 howls")
		send()
		p.wait("no question any more", `!document.querySelector('dialog')`)
		says("section[aria-labelledby=past-title]", "train the encoder")
		ended, _, err := allocations.New(w.db).List(t.Context(), allocations.Filter{Status: schemas.AllocationCompleted, Limit: 10})
		if err != nil || len(ended) != 1 || ended[0].Report != "fan3 howls" {
			t.Errorf("ended: %+v %v", ended, err)
		}
		for _, line := range p.console() {
			if !strings.Contains(line, "409") { // what does not fit is a conflict
				t.Errorf("the console said %s", line)
			}
		}

		v := open(browser, t, w, access.RoleOperator, c.view)
		v.visit(w.base + "allocations")
		v.wait("who may", fmt.Sprintf(`document.querySelector('.ask-for')?.innerText.includes(%q)`, c.wants))
		if on := v.eval(`String([...document.querySelectorAll('.ask-for button, .does button')].filter((b) => !b.disabled).map((b) => b.textContent))`); on != "" {
			t.Errorf("an operator may press %s", on)
		}
	}
}

// TestAMemberOfATeamSeesWhatIsTheirs: neither the allocations of others nor what is stranded.
func TestAMemberOfATeamSeesWhatIsTheirs(t *testing.T) {
	t.Parallel()
	w, all := allots(t)
	p := open(browsertest.Chromium(t), t, w, access.RoleViewer, view{1280, 900, "light", "en"})
	if status := p.eval(fmt.Sprintf(`fetch('api/v1/login', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ token: %q }) }).then((r) => String(r.status))`, w.tokens["bo"])); status != "200" {
		t.Fatalf("login: %s", status)
	}
	p.visit(w.base + "allocations")
	p.wait("the sentence", `document.querySelector('h1').innerText.startsWith('You and your teams have 1 allocation with 32 GPUs. In all, 43 of 512 GPUs are given; 8 are stranded.')`)
	if text := p.eval(`document.getElementById('main').innerText`); !strings.Contains(text, "train the encoder") || strings.Contains(text, "evaluation") || strings.Contains(text, "notebook") {
		t.Errorf("the page says %q", text)
	}
	p.eval(`document.querySelector('.ask-for .primary').click(); ''`)
	p.wait("a choice for oneself", `document.querySelector('dialog.ask .found')?.innerText.includes('1 server would be given')`)
	if field := p.eval(`String(document.getElementById('alo-user'))`); field != "null" {
		t.Error("somebody who has a name is asked for it")
	}
	// What another process does is seen without a reload.
	a := all["train the encoder"]
	if _, err := allocations.New(w.db).End(t.Context(), "allocator", a.ID, 0, schemas.AllocationCompleted, "expired", ""); err != nil {
		t.Fatal(err)
	}
	p.wait("that it has ended", `document.querySelector('section[aria-labelledby=live-title]').innerText.includes('Nothing is given')`)
	p.wait("that they are told", `document.querySelector('section[aria-labelledby=told-title]').innerText.includes('ended train the encoder')`)
	p.wait("it among what has ended", `document.querySelector('section[aria-labelledby=past-title]').innerText.includes('train the encoder')`)
}
