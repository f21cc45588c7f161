package api_test

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"auspex/internal/browsertest"
)

// TestThePageOffersTheLoginService logs in by the button, and shows what keeps somebody out and
// that the login service is away, in both languages.
func TestThePageOffersTheLoginService(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	shots := os.Getenv("AUSPEX_SHOTS")
	checker := axe(t)
	for _, c := range []struct {
		view                   view
		button, noRole, notNow string
	}{
		{view{1280, 800, "dark", "en"}, "Log in with Example login", "None of your groups has a role here", "does not answer right now"},
		{view{390, 844, "light", "zh"}, "使用 Example login 登录", "您的用户组在这里没有角色", "暂时没有响应"},
	} {
		w, s, _ := consoleWith(t, false)
		p := stranger(browser, t, w, c.view)
		says := func(text string) string { return `document.getElementById('main')?.innerText.includes("` + text + `")` }
		p.do(chromedp.Navigate(w.base + "incidents?status=all"))
		p.wait("that it is away", says(c.notNow))
		s.start(t)
		p.wait("the button", `document.querySelector('a.btn')?.innerText === "`+c.button+`"`)
		enter := func() {
			p.eval(`document.querySelector('a.btn').click(); ''`)
			p.wait("the login service", `document.querySelector('input[name=password]')`)
			p.eval(`document.querySelector('input[name=username]').value='ada'; document.querySelector('input[name=password]').value='pw'; document.querySelector('form').submit(); ''`)
		}
		enter()
		p.wait("why not", says(c.noRole))
		if at := p.eval(`location.hash`); at != "" {
			t.Errorf("the reason stays in the address: %s", at)
		}
		p.wait("the button again", `document.querySelector('a.btn')`)
		p.picture(shots, "login-"+c.view.language)
		if found := p.barriers(checker, "document"); found != "" {
			t.Error(found)
		}
		s.set(func() { s.groups["id-ada"] = []string{"watch"} })
		enter()
		p.wait("the console", `document.querySelector('header.topbar')`)
		p.wait("the incidents", `document.querySelector('header.topbar a.on')?.getAttribute('href').length > 0`)
	}
}
