package api_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"auspex/api"
	"auspex/api/access"
	"auspex/internal/browsertest"
	"auspex/internal/waittest"
)

const tagged = `[...document.querySelectorAll('.opblock-tag')].map((e) => e.dataset.tag)`

// tries opens an operation on the page of the API, gives it parameters, sends it, and
// returns what was answered and whom it was sent to.
func (p *tab) tries(tag, id string, params map[string]string) (answer, address string) {
	p.t.Helper()
	p.eval(`(() => { const f = document.querySelector('.operation-filter-input'); f.focus(); f.select(); return ''; })()`)
	p.keys(tag)
	p.wait("its tag alone", fmt.Sprintf(`%s.join() === %q`, tagged, tag))
	p.eval(`document.querySelector('.opblock-tag[data-is-open=false]')?.click(); ''`)
	at := fmt.Sprintf(`document.getElementById('operations-%s-%s')`, tag, id)
	p.wait(id+" is listed", at+` || (scrollBy(0, 200), false)`) // rows far from the screen are not drawn
	p.eval(at + `.querySelector('.opblock-summary-control').click(); ''`)
	p.wait(id+" is open", at+`?.querySelector('.try-out__btn')`)
	p.eval(at + `.querySelector('.try-out__btn').click(); ''`)
	p.wait(id+" can be sent", at+`?.querySelector('.execute')`)
	for name, value := range params {
		p.eval(fmt.Sprintf(`(() => { const f = %s.querySelector('[data-param-name=%q] input'); f.focus(); f.select(); return ''; })()`, at, name))
		p.keys(value)
		p.eval(`document.activeElement.blur(); ''`) // what is typed counts once a person is done with it
	}
	p.eval(at + `.querySelector('.execute').click(); ''`)
	p.wait(id+" is answered", at+`?.querySelector('.live-responses-table tbody .response-col_status')`)
	p.eval(at + `.querySelector('.live-responses-table').scrollIntoView({ block: 'center' }); ''`)
	return p.eval(at + `.querySelector('.live-responses-table tbody').innerText`), p.eval(at + `.querySelector('.request-url pre').innerText`)
}

// readable holds the page of the API to WCAG 2.1 AA, where there is a checker. Left out is one rule:
// Swagger UI lists an operation as a button with a link in it (nested-interactive, 4.1.2), which is for its
// makers to take apart.
func (p *tab) readable(what, theme, checker string) {
	p.t.Helper()
	if found := p.barriers(checker, "document", "nested-interactive"); found != "" {
		p.t.Errorf("%s, %s: %s", what, theme, found)
	}
}

// TestTheAPIIsTriedInABrowser reads and tries the API on its page, under the policy of all
// pages: a read and a write with the session of the console, a read with a token and without
// either. Everybody can read it, dark and light.
func TestTheAPIIsTriedInABrowser(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	checker := axe(t)
	for _, c := range []struct {
		view
		base string
	}{{view{1280, 900, "dark", "en"}, ""}, {view{1280, 900, "light", "en"}, "/auspex"}} {
		w := start(t, true, func(cfg *api.Config, _ *api.Deps) { cfg.BasePath = c.base })
		shots, name := os.Getenv("AUSPEX_SHOTS"), "try-"+c.theme
		opens := func(p *tab) {
			t.Helper()
			p.do(chromedp.Navigate(w.base + "docs/api"))
			p.wait("the tags", tagged+`.length > 10`)
		}
		p := open(browser, t, w, access.RoleOperator, c.view)
		p.keys("/")
		p.wait("the palette", `document.activeElement.matches('.palette input')`)
		p.keys("try the API")
		p.wait("the page is offered", `document.querySelector('.palette [role=option].on')?.innerText.includes('API')`)
		p.eval(`setTimeout(() => document.querySelector('.palette [role=option].on').click()); ''`)
		waittest.Until(t, func() error { // the tab leaves a page meanwhile, which ends what it is asked there
			at, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`location.pathname`))
			if err == nil && at != c.base+"/docs/api" {
				err = fmt.Errorf("the palette leads to %s", at)
			}
			return err
		})
		p.wait("the tags", tagged+`.length > 10`)
		p.picture(shots, name)
		if is := p.eval(`String(document.documentElement.classList.contains('dark-mode'))`); (is == "true") != (c.theme == "dark") {
			t.Errorf("%s: dark is %s", c.theme, is)
		}
		p.readable("the tags", c.theme, checker)
		answer, address := p.tries("verdicts", "listIncidents", map[string]string{"limit": "2"})
		if !strings.HasPrefix(answer, "200") || !strings.Contains(answer, "i-104") || address != w.base+"api/v1/incidents?limit=2" {
			t.Errorf("a read of %s answered %s", address, answer)
		}
		p.picture(shots, name+"-answer")
		p.readable("a read and its answer", c.theme, checker)
		if answer, _ := p.tries("session", "logout", nil); !strings.HasPrefix(answer, "204") {
			t.Errorf("a write with a session answered %s", answer)
		}
		said := p.console()
		if outside := p.eval(
			`performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !n.startsWith('data:') && new URL(n).origin !== location.origin).join(' ')`,
		); outside != "" {
			t.Errorf("requests to another origin: %s", outside)
		}

		s := stranger(browser, t, w, c.view)
		opens(s)
		s.eval(`document.querySelector('.auth-wrapper .authorize').click(); ''`)
		s.wait("where a token goes", `document.querySelector('#auth-bearer-value')`)
		s.picture(shots, name+"-token")
		s.readable("where a token goes", c.theme, checker)
		s.eval(`document.querySelector('#auth-bearer-value').focus(); ''`)
		s.keys(w.tokens[access.RoleViewer])
		s.eval(`document.querySelector('.auth-container:has(#auth-bearer-value) .authorize').click(); ''`)
		s.wait("the token is taken", `!document.querySelector('#auth-bearer-value')`)
		s.eval(`document.querySelector('.modal-ux .close-modal').click(); ''`)
		if answer, _ := s.tries("session", "getMe", nil); !strings.HasPrefix(answer, "200") {
			t.Errorf("a read with a token answered %s", answer)
		}
		if kept := s.eval(`JSON.stringify(localStorage) + JSON.stringify(sessionStorage)`); strings.Contains(kept, w.tokens[access.RoleViewer]) {
			t.Error("the token stays in the browser")
		}
		for _, line := range append(said, s.console()...) {
			t.Errorf("the console said %s", line)
		}

		r := open(browser, t, w, access.RoleViewer, c.view)
		opens(r)
		if answer, _ := r.tries("allocations", "createAllocation", nil); !strings.HasPrefix(answer, "403") {
			t.Errorf("a write without the right to it answered %s", answer)
		}
		r.picture(shots, name+"-write")
		r.readable("a write and its answer", c.theme, checker)

		n := stranger(browser, t, w, c.view)
		opens(n)
		if answer, _ := n.tries("verdicts", "listIncidents", nil); !strings.HasPrefix(answer, "401") || !strings.Contains(answer, "login_needed") {
			t.Errorf("a read without a session answered %s", answer)
		}
	}
}

// TestTheAPIPageIsServedAsAllPages are: under the same policy, compressed where that is asked for.
func TestTheAPIPageIsServedAsAllPages(t *testing.T) {
	w := start(t, false, func(c *api.Config, _ *api.Deps) { c.BasePath = "/auspex" })
	console := w.send(t, http.MethodGet, "fleet", "", nil)
	for _, path := range []string{"docs/api", "docs/api/", "docs/api?x=1"} {
		a := w.send(t, http.MethodGet, path, "", nil)
		if a.status != http.StatusOK || !strings.Contains(string(a.body), `src="/auspex/docs/swagger-ui-bundle.js"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if got, want := a.header.Get("Content-Security-Policy"), console.header.Get("Content-Security-Policy"); got != want {
			t.Errorf("%s: the policy is %q, that of the console %q", path, got, want)
		}
	}
	a := w.send(t, http.MethodGet, "docs/swagger-ui-bundle.js", "", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	if a.header.Get("Content-Encoding") != "gzip" || len(a.body) > 520<<10 {
		t.Errorf("the library comes as %q in %d bytes", a.header.Get("Content-Encoding"), len(a.body))
	}
	if a := w.send(t, http.MethodGet, "api/v1/openapi.yaml", "", nil); !strings.Contains(string(a.body), `servers: [{url: "/auspex/api/v1"}]`) {
		t.Error("the document below a prefix does not name the prefix")
	}
}
