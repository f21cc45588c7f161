package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

// TestNumbersAreShownWithTheDigitsThatCount runs the formatters of the pages: a large number has no
// decimals, a small one is not nothing, and what is missing is not 0.
func TestNumbersAreShownWithTheDigitsThatCount(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("AUSPEX_REQUIRE_NPM") != "" {
			t.Fatal("node is missing")
		}
		t.Skip("node, which runs the formatters, is not installed")
	}
	cases := []struct{ call, en, zh string }{
		{`num(1564.373)`, "1,564", "1,564"},
		{`num(1234567.891)`, "1,234,568", "1,234,568"},
		{`num(-1564.373)`, "-1,564", "-1,564"},
		{`num(123.456)`, "123", "123"},
		{`num(12.345)`, "12.3", "12.3"},
		{`num(5.678)`, "5.68", "5.68"},
		{`num(5.6)`, "5.6", "5.6"},
		{`num(0.00412)`, "0.00412", "0.00412"},
		{`num(0.1 * 3 * 100)`, "30", "30"},
		{`num(1564)`, "1,564", "1,564"},
		{`num(0)`, "0", "0"},
		{`num(1564.373, 2)`, "1,564.37", "1,564.37"},
		{`num(null)`, "–", "–"},
		{`tick(1000.25, 0.25)`, "1,000.25", "1,000.25"},
		{`tick(1000.2, 0.1)`, "1,000.2", "1,000.2"},
		{`tick(20000, 2000)`, "20,000", "20,000"},
		{`fixed(1564.373, 1)`, "1,564.4", "1,564.4"},
		{`compact(1234)`, "1.2 k", "1,234"},
		{`compact(999960)`, "1.0 M", "100万"},
		{`compact(-25e6)`, "-25.0 M", "-2500万"},
		{`compact(3.2e12)`, "3.2 T", "3.2万亿"},
		{`compact(999.7)`, "1.0 k", "1,000"},
		{`compact(12.34)`, "12.3", "12.3"},
		{`compact(0.4)`, "0.4", "0.4"},
		{`compact(null)`, "–", "–"},
		{`pct(0.123456)`, "12%", "12%"},
		{`prob(0.9999)`, "> 99%", "> 99%"},
		{`dur(172)`, "2 min 52 s", "2 分钟 52 秒"},
		{`dur(86400 * 12345)`, "12,345 d", "12,345 天"},
		{`dur(undefined)`, "–", "–"},
		{`dur(0)`, "0 s", "0 秒"},
	}
	var script strings.Builder
	script.WriteString("import { fmt, setLanguage } from './i18n.js';\nconst out = [];\nfor (const l of ['en', 'zh']) { await setLanguage(l); out.push([\n")
	for _, c := range cases {
		script.WriteString("fmt." + c.call + ",\n")
	}
	script.WriteString("]); }\nconsole.log(JSON.stringify(out));\n")
	lib, err := filepath.Abs(filepath.Join("src", "lib"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hooks := filepath.Join(dir, "hooks.js") // nothing is drawn
	if err := os.WriteFile(hooks, []byte("export const useEffect = () => {}, useState = (v) => [v, () => {}];\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	result := api.Build(api.BuildOptions{
		Stdin: &api.StdinOptions{Contents: script.String(), ResolveDir: lib}, Bundle: true, Format: api.FormatESModule, Charset: api.CharsetUTF8,
		Alias: map[string]string{"preact/hooks": hooks}, LogLevel: api.LogLevelWarning,
		Banner: map[string]string{"js": `globalThis.localStorage = { getItem: () => 'en', setItem() {} };
globalThis.document = { documentElement: {} };`},
	})
	if len(result.Errors) > 0 {
		t.Fatal(result.Errors[0].Text)
	}
	file := filepath.Join(dir, "formats.mjs")
	if err := os.WriteFile(file, result.OutputFiles[0].Contents, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), node, file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got [2][]string
	if err := json.Unmarshal(text, &got); err != nil || len(got[0]) != len(cases) {
		t.Fatalf("%s: %v", text, err)
	}
	for i, c := range cases {
		for k, want := range []string{c.en, c.zh} {
			if shown := strings.ReplaceAll(got[k][i], "\u00a0", " "); shown != want {
				t.Errorf("%s in %s: %q, want %q", c.call, []string{"en", "zh"}[k], shown, want)
			}
		}
	}
}
