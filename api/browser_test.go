package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"auspex/api"
	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// patience guards against what never comes, however busy the machine is.
const patience = 2 * time.Minute

// some keeps the first view where a browser is not asked for: looking at every
// page in every view takes a minute.
func some(views []view) []view {
	if os.Getenv("AUSPEX_REQUIRE_BROWSER") == "" {
		return views[:1]
	}
	return views
}

// tab is one page that keeps what its console said.
type tab struct {
	t      *testing.T
	ctx    context.Context
	mu     sync.Mutex
	errors []string
}

type view struct {
	width, height   int64
	theme, language string
}

// open opens a tab with its own storage on a console, logged in with a role.
func open(browser context.Context, t *testing.T, w *world, role string, v view) *tab {
	t.Helper()
	p := stranger(browser, t, w, v)
	_, code, _ := strings.Cut(w.login(t, "on-call", role), "#")
	p.visit(w.base + "#" + code)
	return p
}

// stranger opens a tab of somebody who is not logged in.
func stranger(browser context.Context, t *testing.T, w *world, v view) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	viewport := chromedp.EmulateViewport(v.width, v.height)
	if v.width < 700 {
		viewport = chromedp.EmulateViewport(v.width, v.height, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	if err := chromedp.Do(ctx, viewport); err != nil { // the tab lives as long as this context
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(w.base + "icon.svg")) // a file of the same origin, for its storage
	p.eval(fmt.Sprintf(`localStorage.setItem('theme', %q); localStorage.setItem('language', %q); ''`, v.theme, v.language))
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			// a bare file has no icon
			if (m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException) && !strings.HasSuffix(m.URL, "/favicon.ico") {
				p.mu.Lock()
				p.errors = append(p.errors, m.Text+" "+m.URL)
				p.mu.Unlock()
			}
		}
	}()
	return p
}

func (p *tab) console() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errors)
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v; the console said %q", err, p.console())
	}
}

// eval returns a string that JavaScript makes; it waits for a promise.
func (p *tab) eval(js string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%v; the console said %q", err, p.console())
	}
	return s
}

// wait polls a JavaScript condition.
func (p *tab) wait(what, js string) {
	p.t.Helper()
	waittest.Until(p.t, func() error {
		if p.eval("String(Boolean("+js+"))") == "true" {
			return nil
		}
		return fmt.Errorf("%s; the console said %q; the page says %q", what, p.console(), p.eval("document.body?.innerText ?? ''"))
	})
}

const settled = `document.querySelector('main h1, main .note') && !document.querySelector('main .skeleton')`

func (p *tab) visit(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
	p.wait(url, settled)
	p.drawn()
}

// sound holds a page to what each has to be: as wide as the screen, in the words of its language, and
// readable by everybody, where there is a checker.
func (p *tab) sound(what string, v view, checker string) {
	p.t.Helper()
	if wide := p.eval(fmt.Sprintf(tooWide, v.width)); wide != "" {
		p.t.Errorf("%s, %d wide: %s", what, v.width, wide)
	}
	if ids := p.eval(`(document.body.innerText.match(/\b(?:alo|fit|over|life|wish|rung|act|nav|map|agt|inv|part|bup|will|tpl|flow)\.[a-z_]+(?:\.[a-z_]+)*\b/g) ?? []).join(' ')`); ids != "" {
		p.t.Errorf("%s in %s: ids on screen: %s", what, v.language, ids)
	}
	if cut := p.eval(`(() => { const d = document.querySelector('dialog'); return d && d.scrollWidth > d.clientWidth ? d.innerText : ''; })()`); cut != "" {
		p.t.Errorf("%s, %d wide: the dialog is too narrow for %q", what, v.width, cut)
	}
	if found := p.barriers(checker, "document"); found != "" {
		p.t.Errorf("%s in %s, %s: %s", what, v.language, v.theme, found)
	}
}

// pictures are those of the documentation: AUSPEX_PICTURES=../docs/images takes them.
var pictures = map[string]string{"fleet": "fleet", "incidents/i-1042": "incident", "servers/gpu-r05-02": "device", "actions": "actions"}

// picture saves what the tab shows in a folder, where one is given. Relative
// folders are seen from this package.
func (p *tab) picture(dir, name string) {
	if dir == "" {
		return
	}
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

var paths = []string{
	"fleet", "fleet?table=1", "fleet?by=temp", "incidents", "incidents/i-1042", "incidents/i-1043", "incidents/i-1044", "servers/gpu-r05-02",
	"servers/gpu-r03-06", "servers/leaf-r07", "predictions", "actions", "allocations", "inventory", "agents", "explore", "nowhere",
}

// axe is the accessibility checker, from the libraries of the UI.
func axe(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "ui", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		if os.Getenv("AUSPEX_REQUIRE_BROWSER") != "" {
			t.Fatalf("axe-core is missing; run npm ci in ui/: %v", err)
		}
		return ""
	}
	return string(b)
}

// barriers is what of an element breaks WCAG 2.1 AA, but for the rules named, once nothing moves any more:
// a colour half way to another is nobody's choice. Without a checker it is nothing.
func (p *tab) barriers(checker, of string, but ...string) string {
	p.t.Helper()
	if checker == "" {
		return ""
	}
	off := map[string]any{}
	for _, rule := range but {
		off[rule] = map[string]bool{"enabled": false}
	}
	rules, err := json.Marshal(off)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.eval(`String('axe' in window)`) == "false" {
		p.eval(checker + `; ''`)
	}
	// Of what holds the checker tells nothing: to name each element of it takes most of its time.
	return p.eval(`Promise.allSettled(document.getAnimations().filter((a) => a.playState === 'running' && a.effect.getComputedTiming().endTime < Infinity).map((a) => a.finished))
		.then(() => axe.run(` + of + `, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa'], resultTypes: ['violations'], rules: ` + string(rules) + ` }))
		.then((r) => r.violations.map((v) => v.id + ' ' + v.nodes.slice(0, 5).map((n) => n.target + ' ' + (n.any[0]?.message ?? '').slice(0, 200)).join(' | ')).join('; '))`)
}

// TestPagesAreSilentAndAccessible looks at every page in both themes and both
// languages: nothing on the console (so the policy of content holds), no id of a
// message on screen, no violation of WCAG 2.1 AA.
func TestPagesAreSilentAndAccessible(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true, withEstate(t, 8))
	checker := axe(t)
	for _, v := range some([]view{
		{1280, 800, "dark", "en"}, {1280, 800, "light", "zh"}, {1280, 800, "light", "en"}, {1280, 800, "dark", "zh"},
	}) {
		p := open(browser, t, w, access.RoleOperator, v)
		for _, path := range paths {
			p.visit(w.base + path)
			if ids := p.eval(
				`(document.body.innerText.match(/\b(?:sum|say|step|check|act|audit|scope|actor|rail|inc|fleet|dev|pre|predict|exp|state|severity|fault|rung|do|plot|part|role|link|login|load|shell|mode|nav|map|by|alo|fit|wish|over)\.[a-z_]+(?:\.[a-z_]+)*\b/g) ?? []).filter((id) => !/^(fault|link|check\.rules)\b/.test(id)).join(' ')`,
			); ids != "" {
				t.Errorf("%s %s: ids on screen: %s", path, v.language, ids)
			}
			if found := p.barriers(checker, "document"); found != "" {
				t.Errorf("%s %s %s: %s", path, v.theme, v.language, found)
			}
			p.picture(os.Getenv("AUSPEX_SHOTS"), strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path)+"-"+v.theme+"-"+v.language)
			if outside := p.eval(
				`performance.getEntriesByType('resource').map((e) => e.name).filter((n) => new URL(n).origin !== location.origin).join(' ')`,
			); outside != "" {
				t.Errorf("%s: requests to another origin: %s", path, outside)
			}
			if name, ok := pictures[path]; ok && v.language == "en" && v.theme == "dark" {
				p.picture(os.Getenv("AUSPEX_PICTURES"), name)
			}
		}
		if e := p.console(); len(e) > 0 {
			t.Errorf("%s %s: the console said %q", v.theme, v.language, e)
		}
	}
}

// tooWide names what sticks out of a screen of so many pixels, if the page does.
const tooWide = `(() => {
  const screen = %d, root = document.documentElement;
  if (Math.max(root.scrollWidth, document.body.scrollWidth, innerWidth) <= screen) return '';
  const inside = (e) => { for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') return true; return false; };
  const out = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right + scrollX > screen + 0.5 && !inside(e));
  const box = (e) => e.tagName + '.' + (e.getAttribute('class') ?? '') + ' to ' + Math.round(e.getBoundingClientRect().right);
  return root.scrollWidth + ' px; ' + out.slice(0, 8).map(box).join(', ');
})()`

// TestPagesFitTheScreen finds no sideways scroll on a phone, a tablet and a
// laptop, and the decision of an incident in the first screen of a phone.
func TestPagesFitTheScreen(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true, withEstate(t, 8))
	for _, v := range some([]view{
		{390, 844, "dark", "en"}, {390, 844, "light", "zh"}, {768, 1024, "light", "zh"}, {1280, 800, "light", "en"},
	}) {
		p := open(browser, t, w, access.RoleOperator, v)
		for _, path := range append(slices.Clone(paths), "servers/not-there", "incidents/not-there") {
			p.visit(w.base + path)
			// A phone widens its viewport for a page that does not fit: the screen is the measure.
			if wide := p.eval(fmt.Sprintf(tooWide, v.width)); wide != "" {
				t.Errorf("%s at %d is too wide: %s", path, v.width, wide)
			}
			if v.width == 390 {
				p.picture(os.Getenv("AUSPEX_SHOTS"), strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path)+"-phone")
			}
		}
		if v.width == 390 {
			p.visit(w.base + "incidents/i-1043")
			if below := p.eval(
				`const box = document.querySelector('.decide .primary').getBoundingClientRect(); String(box.bottom > innerHeight)`,
			); below != "false" {
				t.Error("the approve button is not in the first screen of a phone")
			}
		}
	}
}

// A page that is not there has a title and a heading, in words, whatever stands
// in its address.
func TestAPageNotFoundHasATitle(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	for _, v := range []view{{1280, 800, "dark", "en"}, {1280, 800, "light", "zh"}} {
		p := open(browser, t, w, access.RoleOperator, v)
		want := map[string]string{"en": "Page not found", "zh": "页面不存在"}[v.language]
		for _, path := range []string{"nowhere", "nowhere/else", "%E0%A4%A", "servers"} {
			p.visit(w.base + path)
			title := p.eval(`document.title.replace(/^\(\d+\) /, '')`)
			heading := p.eval(`document.querySelector('h1')?.textContent ?? ''`)
			if title != want+" · Auspex" || heading != want {
				t.Errorf("%s %s: title %q, heading %q", path, v.language, title, heading)
			}
		}
	}
}

// keys presses keys one after another, as a person would: the next one when the
// page has drawn what the one before has changed.
func (p *tab) keys(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.do(press(k))
		p.drawn()
	}
}

// drawn waits until the page has drawn twice: what a state changes is bound to the
// page after the first.
func (p *tab) drawn() {
	p.t.Helper()
	p.eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50, ''))))`)
}

// press types keys as a keyboard does: what the page makes of a key going down
// decides whether its letter is typed. (chromedp.KeyEvent sends the letter by
// itself, and it may land in the field that the key has just opened.)
func press(keys string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, r := range keys {
			events := kb.Encode(r)
			if len(events) == 3 { // down, letter, up
				events[0].Text, events[0].UnmodifiedText = events[1].Text, events[1].UnmodifiedText
				events = []*input.DispatchKeyEventParams{events[0], events[2]}
			}
			for _, e := range events {
				if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, *e); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// TestRepairByKeyboard opens the second incident, approves its step, sees it
// run and end, finds a server and goes back, with keys alone.
func TestRepairByKeyboard(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := start(t, true)
	intents := w.intents(t)
	p := open(browser, t, w, access.RoleOperator, view{1280, 800, "dark", "en"})
	p.visit(w.base + "fleet")
	p.wait("open incidents", `document.querySelectorAll('.incident-row').length === 3`)
	p.keys("j", kb.Enter)
	p.wait("the first incident", `location.pathname.endsWith('/incidents/i-1043')`)
	p.wait("its action", `document.querySelector('.decide .primary')`)
	p.keys("a")
	p.wait("a question before it acts", `document.querySelector('dialog.ask[open]')`)
	if text := p.eval(`document.querySelector('dialog.ask .primary').textContent`); text != "Power cycle gpu-r03-06" {
		t.Errorf("the button of the dialog says %q", text)
	}
	p.picture(os.Getenv("AUSPEX_SHOTS"), "ask-dark-en")
	p.keys(kb.Escape)
	p.wait("the question is gone", `!document.querySelector('dialog')`)
	p.eval(`document.querySelector('.decide .primary').focus(); ''`)
	p.keys(kb.Enter)
	p.wait("the question by its button", `document.querySelector('dialog.ask[open]')`)
	p.keys(kb.Escape)
	p.wait("focus is back on the button", `document.activeElement.matches('.decide .primary')`)
	p.keys("a")
	p.wait("the question again", `document.querySelector('dialog.ask[open]')`)
	p.eval(`const b = document.querySelector('dialog.ask .primary'); b.click(); b.click(); ''`)
	in := <-intents
	if in.Verb != "approve" || in.Action != "a-314" || in.Server != "gpu-r03-06" || in.Actor != "on-call" {
		t.Errorf("intent: %+v", in)
	}
	select {
	case in := <-intents:
		t.Errorf("a double click sent a second intent: %+v", in)
	case <-time.After(500 * time.Millisecond):
	}
	w.change(t, "a-314", schemas.ActionRunning, "")
	p.wait("the step runs", `[...document.querySelectorAll('.action header')].some((h) => /Power cycle.*Running/.test(h.textContent))`)
	w.change(t, "a-314", schemas.ActionDone, "8 of 8 GPUs")
	p.wait(
		"the step is verified", `[...document.querySelectorAll('.action')].some((h) => /Power cycle.*Done.*8 of 8 GPUs/s.test(h.textContent))`,
	)
	p.keys("/")
	p.wait("the palette", `document.activeElement.matches('.palette input')`)
	p.keys("gpu-r05-02")
	p.wait("the server is offered", `[...document.querySelectorAll('.palette *')].some((e) => e.textContent.includes('gpu-r05-02'))`)
	p.keys(kb.Enter)
	p.wait("the server", `location.pathname.endsWith('/servers/gpu-r05-02')`)
	p.keys("u")
	p.wait("back", `location.pathname.endsWith('/incidents/i-1043')`)
	// The second key has to come within 1.2 s of the first: both in one go.
	p.eval(`['g', 'f'].forEach((key) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))); ''`)
	p.wait("the map", `document.querySelector('canvas')`)
	p.keys("n")
	p.wait("the next problem", `/affected|critical/i.test(document.getElementById('map-now').textContent)`)
	if e := p.console(); len(e) > 0 {
		t.Errorf("the console said %q", e)
	}
}

// TestTheMapAnswersToItsKeysInTheFirstFrame lets the data of the fleet come late, and
// presses the key for the next problem in the very frame that first shows the map: nobody
// is quicker, however busy the machine is.
func TestTheMapAnswersToItsKeysInTheFirstFrame(t *testing.T) {
	t.Parallel()
	w := start(t, true)
	p := open(browsertest.Chromium(t), t, w, access.RoleViewer, view{1280, 800, "light", "en"})
	for _, delay := range []int{0, 20, 300} {
		p.visit(w.base + "incidents")
		got := p.eval(fmt.Sprintf(`new Promise((told) => {
			const fetched = window.fetch;
			window.fetch = (...args) => (/api\/v1\/fleet/.test(args[0]?.url ?? args[0])
				? new Promise((go) => setTimeout(go, %d)).then(() => fetched(...args)) : fetched(...args));
			const key = (k) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true}));
			const seen = new MutationObserver(() => {
				if (!document.querySelector('canvas')) return;
				seen.disconnect();
				requestAnimationFrame(() => { // the map is about to be painted for the first time
					key('n');
					requestAnimationFrame(() => told('said: ' + document.getElementById('map-now')?.textContent));
				});
			});
			seen.observe(document.body, {childList: true, subtree: true});
			['g', 'f'].forEach(key);
		})`, delay))
		if now := strings.ToLower(got); !strings.Contains(now, "affected") && !strings.Contains(now, "critical") {
			t.Errorf("data after %d ms: the key was lost; the map says %q", delay, got)
		}
	}
	if e := p.console(); len(e) > 0 {
		t.Errorf("the console said %q", e)
	}
}

// TestTroubleIsTold shows what a person sees when the server is down, has no
// data, or refuses: a sentence, and what was known stays.
func TestTroubleIsTold(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	t.Run("empty", func(t *testing.T) {
		w := start(t, false)
		p := open(browser, t, w, access.RoleViewer, view{1280, 800, "light", "en"})
		for path, want := range map[string]string{
			"fleet": "Nothing is watched yet", "incidents": "No incident matches", "predictions": "No part is expected", "actions": "Nothing waits",
			"servers/x": "There is no server",
		} {
			p.visit(w.base + path)
			p.wait(path, fmt.Sprintf("document.body.innerText.includes(%q)", want))
		}
	})
	t.Run("viewer", func(t *testing.T) {
		w := start(t, true)
		p := open(browser, t, w, access.RoleViewer, view{1280, 800, "dark", "en"})
		for _, path := range []string{"incidents/i-1043", "actions"} {
			p.visit(w.base + path)
			p.wait(path, `document.querySelectorAll('.decide button').length > 0`)
			if on := p.eval(`String(document.querySelectorAll('.decide button:not([disabled])').length)`); on != "0" {
				t.Errorf("%s: a viewer sees %s writes that are on", path, on)
			}
		}
		p.wait("who may see the audit", `document.querySelector('[aria-labelledby=audit-title]').innerText.includes('Operators and admins')`)
	})
	t.Run("logged out", func(t *testing.T) {
		w := start(t, true)
		p := open(browser, t, w, access.RoleViewer, view{1280, 800, "dark", "en"})
		p.wait("the code has left the address", `location.hash === ''`)
		p.eval(`fetch('api/v1/logout', { method: 'POST' }).then(() => '')`)
		p.do(chromedp.Navigate(w.base + "incidents"))
		p.wait("the login page", `document.querySelector('.login input')`)
		p.picture(os.Getenv("AUSPEX_SHOTS"), "login-dark-en")
		p.eval(`document.querySelector('.login input').focus(); ''`)
		p.keys(w.tokens[access.RoleOperator], kb.Enter)
		p.wait("the page after the login", `document.querySelectorAll('tbody tr').length > 2`)
	})
	t.Run("down", func(t *testing.T) {
		w := start(t, true)
		p := open(browser, t, w, access.RoleOperator, view{1280, 800, "dark", "en"})
		p.visit(w.base + "incidents/i-1043")
		p.wait("the action", `document.querySelector('.decide .primary')`)
		up := w.down(t)
		p.wait("the loss of contact", `document.querySelector('.lost')`)
		p.wait("writes are off", `document.querySelector('.decide .primary').disabled`)
		if p.eval(`String(document.querySelectorAll('.lane-item').length)`) == "0" {
			t.Error("what was shown is gone")
		}
		p.picture(os.Getenv("AUSPEX_SHOTS"), "lost-dark-en")
		up()
		p.wait("contact again", `document.querySelector('.link.is-live')`)
	})
	t.Run("below a prefix", func(t *testing.T) {
		w := start(t, true, withEstate(t, 8), func(c *api.Config, _ *api.Deps) { c.BasePath = "/auspex" })
		p := open(browser, t, w, access.RoleOperator, view{1280, 800, "dark", "en"})
		for _, path := range paths {
			p.visit(w.base + path)
			if outside := p.eval(
				`[...performance.getEntriesByType('resource').map((e) => e.name), ...[...document.querySelectorAll('a[href]')].map((a) => a.href)].filter((n) => !n.startsWith(document.baseURI)).join(' ')`,
			); outside != "" {
				t.Errorf("%s: requests or links leave the prefix: %s", path, outside)
			}
		}
		p.visit(w.base + "incidents")
		p.wait("incidents", `document.querySelectorAll('tbody tr').length > 2`)
		p.eval(`document.querySelector('tbody tr a').click(); ''`)
		p.wait("an incident below the prefix", `location.pathname.startsWith('/auspex/incidents/i-')`)
		if e := p.console(); len(e) > 0 {
			t.Errorf("the console said %q", e)
		}
	})
}
