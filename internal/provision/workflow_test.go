package provision_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/provision"
	"auspex/schemas"
)

// good is a template that can be used; each bad one differs from it in a line.
const good = `version: "0.1"
name: ubuntu
global_timeout: 1800
tasks:
  - name: install
    worker: "{{.device_1}}"
    volumes:
      - /dev:/dev
    actions:
      - name: stream image
        image: images.example/actions/image2disk:v1.0.0
        timeout: 600
        environment:
          DEST_DISK: {{ index .Hardware.Disks 0 }}
          IMG_URL: "{{ .image_url }}"
      - name: reboot
        image: images.example/waitdaemon:0.2.1
        timeout: 90
        pid: host
        command: ["reboot"]
`

func parameters() map[string]any {
	return map[string]any{"type": "object", "required": []any{"image_url"}, "properties": map[string]any{
		"image_url": map[string]any{"type": "string", "format": "uri", "examples": []any{"http://images/ubuntu.raw.gz"}},
	}}
}

func body(text string) *schemas.TemplateBody {
	return &schemas.TemplateBody{OSFamily: "ubuntu", Architectures: []string{schemas.ArchX86}, Text: text, Parameters: parameters()}
}

func TestAGoodTemplateIsGood(t *testing.T) {
	if err := provision.Check(t.Context(), body(good)); err != nil {
		t.Error(err)
	}
}

// Each template has one fault, which is told with the line that it is in.
func TestBadTemplates(t *testing.T) {
	for _, tc := range []struct {
		name, old, with string
		line            int
		want            string
	}{
		{"a brace is open", "{{.device_1}}", "{{.device_1", 6, `bad character`},
		{"an end is missing", "version: \"0.1\"\n", "version: \"0.1\"\n{{ if .image_url }}", 21, "unexpected EOF"},
		{"a function that there is not", "{{ .image_url }}", "{{ uper .image_url }}", 15, "uper is no function that a template may use; there is upper"},
		{"a function of the machine that renders", "{{ .image_url }}", `{{ env "HOME" }}`, 15, "env is no function that a template may use"},
		{"a name of another", "{{ .image_url }}", `{{ getHostByName "a" }}`, 15, "getHostByName is no function"},
		{"no parameter", "{{ .image_url }}", "{{ .image_ur }}", 15, ".image_ur is neither a parameter nor the hardware's; there is .image_url"},
		{"no parameter, in a branch that is not taken", "{{ .image_url }}", `{{ if eq .image_url "" }}{{ .other }}{{ end }}{{ .image_url }}`, 15, ".other is neither a parameter"},
		{"no parameter, within a loop", "{{ .image_url }}", `{{ range .Hardware.Disks }}{{ $.other }}{{ end }}`, 15, ".other is neither a parameter"},
		{"no parameter, in a template within", "version:", "{{ define \"x\" }}{{ .other }}{{ end -}}\n{{ template \"x\" . }}version:", 1, ".other is neither a parameter"},
		{"nothing that hardware has", "index .Hardware.Disks 0", ".Hardware.Disk", 14, ".Hardware.Disk is nothing that the hardware has; it has Disks, Interfaces, UserData, Metadata, VendorData"},
		{"nothing that hardware has, deeper", "{{ .image_url }}", "{{ .Hardware.Metadata.Instance.Hostnam }}", 15, ".Hardware.Metadata.Instance.Hostnam is nothing that the hardware has"},
		{"an interface that no server has", "index .Hardware.Disks 0", "index .Hardware.Disks 16", 14, "index out of range"},
		{"no YAML", "      - /dev:/dev", "      - [/dev:/dev", 8, "is no YAML of a workflow"},
		{"another shape", "    volumes:\n      - /dev:/dev", "    volumes: /dev:/dev", 7, "is no YAML of a workflow: cannot unmarshal"},
		{"another version", `"0.1"`, `"0.2"`, 1, `version is "0.2", and Tinkerbell has 0.1 alone`},
		{"no version", "version: \"0.1\"\n", "", 1, `version is ""`},
		{"no name", "name: ubuntu", `name: ""`, 2, "the workflow has no name"},
		{"a long name", "name: ubuntu", "name: " + strings.Repeat("x", 200), 2, "no name of 1 to 199"},
		{"no global timeout", "global_timeout: 1800\n", "", 1, "global_timeout is no number of seconds above 0"},
		{"no time at all", "global_timeout: 1800", "global_timeout: 0", 3, "global_timeout is no number of seconds above 0"},
		{"a timeout that is a text", "timeout: 600", "timeout: ten minutes", 12, "is no YAML of a workflow: cannot unmarshal"},
		{"a timeout below nothing", "timeout: 600", "timeout: -1", 12, "the action stream image has no timeout of seconds above 0"},
		{"no timeout", "        timeout: 90\n", "", 16, "the action reboot has no timeout"},
		{"two actions of one name", "name: reboot", "name: stream image", 16, "there are two actions named stream image"},
		{"no name of an action", "name: reboot", `name: ""`, 16, "the action has no name"},
		{"no tag", "image2disk:v1.0.0", "image2disk", 11, "has neither a tag nor a digest"},
		{"no image", "        image: images.example/waitdaemon:0.2.1\n", "", 16, "the action reboot has no image"},
		{"no name of an image", "images.example/waitdaemon:0.2.1", "IMAGES.example/Wait Daemon:1", 17, "is no name of an image"},
		{"a field that is misspelt", `command: ["reboot"]`, `comand: ["reboot"]`, 20, "the action reboot has no field comand, and Tinkerbell would read over it; there is command"},
		{"a field twice", "timeout: 90\n", "timeout: 90\n        timeout: 91\n", 19, `mapping key "timeout" already defined`},
		{"no worker", `"{{.device_1}}"`, `""`, 6, "the task install has no worker"},
		{"a volume of one place", "/dev:/dev", "/dev", 8, `the volume "/dev" is not FROM:TO`},
		{"no tasks", good[strings.Index(good, "tasks:"):], "tasks: []\n", 4, "there is no task"},
		{
			"behind a loop that makes many lines of three",
			"      - /dev:/dev\n    actions:\n      - name: stream image\n        image: images.example/actions/image2disk:v1.0.0",
			"{{ range .Hardware.Disks }}\n      - {{ . }}:{{ . }}\n{{ end }}    actions:\n      - name: stream image\n        image: images.example/actions/image2disk", 12,
			"has neither a tag nor a digest",
		},
		{"a placeholder of Tinkerbell's", "{{ .image_url }}", `{{ "{{" }} .x }}`, 15, "for a placeholder once more"},
		{"what has no value", "{{ .image_url }}", "{{ .proxy }}", 15, "is printed that has no value"},
		{"its own words", "{{ .image_url }}", `{{ fail "two disks are needed." }}`, 15, "two disks are needed"},
		{"a loop without an end", "{{ .image_url }}", "{{ range 1000000000 }}{{ end }}", 15, "it takes more than 20000 steps"},
		{"a template that calls itself", "version:", `{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}version:`, 1, "it takes more than 20000 steps"},
		{"a text that doubles", "{{ .image_url }}", `{{ $x := "xx" }}{{ range 40 }}{{ $x = print $x $x }}{{ end }}`, 15, "is larger than"},
		{"much of little", "{{ .image_url }}", `{{ printf "%100000d" 1 }}`, 15, "width of 1000 or more"},
		{"a wide indentation", "{{ .image_url }}", `{{ indent 1000000000 "x" }}`, 15, "is not within 0 to 200"},
		{"a text without an end", "{{ .image_url }}", `{{ range 10000 }}` + strings.Repeat("x", 50) + `{{ end }}`, 15, "is larger than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !strings.Contains(good, tc.old) {
				t.Fatal("the good template has no", tc.old)
			}
			b := body(strings.Replace(good, tc.old, tc.with, 1))
			b.Parameters["properties"].(map[string]any)["proxy"] = map[string]any{"type": "string"}
			err := provision.Check(t.Context(), b)
			var faults provision.Faults
			if !errors.As(err, &faults) {
				t.Fatal(err)
			}
			if f := faults[0]; f.Field != "text" || f.Line != tc.line || !strings.Contains(f.Detail, tc.want) {
				t.Errorf("%s\nwant line %d: %s", err, tc.line, tc.want)
			}
		})
	}
}

// Each schema has one fault, which is told with the path to it.
func TestBadParameters(t *testing.T) {
	of := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties}
	}
	text := func(more ...any) map[string]any {
		out := map[string]any{"type": "string"}
		for i := 0; i < len(more); i += 2 {
			out[more[i].(string)] = more[i+1]
		}
		return out
	}
	for _, tc := range []struct {
		name        string
		schema      map[string]any
		field, want string
	}{
		{"no object", map[string]any{"type": "array"}, "parameters.type", "is not object"},
		{"another draft", map[string]any{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "parameters.$schema", "is not https://json-schema.org/draft/2020-12/schema"},
		{"what leads elsewhere", of(map[string]any{"a": map[string]any{"$ref": "http://127.0.0.1/x"}}), "parameters.properties.a.$ref", "is no keyword"},
		{"a word that is misspelt", of(map[string]any{"a": text("maxLenght", 3)}), "parameters.properties.a.maxLenght", "there is maxLength"},
		{"a type that there is not", of(map[string]any{"a": map[string]any{"type": "txt"}}), "parameters.properties.a.type", ""},
		{"a pattern that is none", of(map[string]any{"a": text("pattern", "(")}), "parameters.properties.a.pattern", ""},
		{"no name", of(map[string]any{"a-b": text()}), "parameters.properties.a-b", "is no name of a parameter"},
		{"the hardware's name", of(map[string]any{"Hardware": text()}), "parameters.properties.Hardware", "is what the hardware is called"},
		{"needed and not there", map[string]any{"type": "object", "required": []any{"a"}}, "parameters.required", `names "a"`},
		{"nothing to try it with", map[string]any{"type": "object", "required": []any{"a"}, "properties": map[string]any{"a": text()}}, "parameters.properties.a", "has neither a default nor examples"},
		{"a default that it does not take", of(map[string]any{"a": text("default", 1)}), "parameters.properties.a.default", "is not what the schema says: got number, want string"},
		{"an example that it does not take", of(map[string]any{"a": text("default", "x", "maxLength", 2, "examples", []any{"xyz"})}), "parameters.properties.a.examples", "maxLength"},
		{"a secret within", of(map[string]any{"a": map[string]any{"type": "object", "properties": map[string]any{"b": text("writeOnly", true)}}}), "parameters.properties.a.properties.b", "only a parameter itself can be a secret"},
		{"a secret that is a number", of(map[string]any{"a": map[string]any{"type": "integer", "writeOnly": true}}), "parameters.properties.a.type", "is not string"},
		{"a secret in the open", of(map[string]any{"a": text("format", "password", "default", "hunter2")}), "parameters.properties.a.default", "is no reference to a secret"},
		{"refused, and not said why", of(map[string]any{"a": map[string]any{"not": map[string]any{}}}), "parameters.properties.a.description", "it says why"},
		{"something refused", of(map[string]any{"a": text("not", map[string]any{"const": "x"})}), "parameters.properties.a.not", "is not {}"},
		{"refused within", of(map[string]any{"a": map[string]any{"type": "array", "items": map[string]any{"not": map[string]any{}}}}), "parameters.properties.a.items.not", "is not {}"},
		{"needed and refused", map[string]any{"type": "object", "required": []any{"a"}, "properties": map[string]any{"a": map[string]any{"not": map[string]any{}, "description": "none"}}}, "parameters.required", `names "a"`},
		{"whatever there is", map[string]any{"type": "object", "additionalProperties": true}, "parameters.additionalProperties", "is always refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := body(strings.Replace(good, "{{ .image_url }}", "http://images/x", 1))
			b.Parameters = tc.schema
			var faults provision.Faults
			if err := provision.Check(t.Context(), b); !errors.As(err, &faults) {
				t.Fatal(err)
			}
			if f := faults[0]; f.Field != tc.field || !strings.Contains(f.Detail, tc.want) || strings.Contains(f.Detail, "hunter2") {
				t.Errorf("%v\nwant %s: %s", faults, tc.field, tc.want)
			}
		})
	}
}

// record is a server of which everything is known.
func record() *schemas.HardwareRecord {
	return &schemas.HardwareRecord{
		ID: "s", Name: "gpu-1", Facts: []schemas.HardwareFact{{Fact: schemas.FactArchitecture, Value: schemas.ArchX86}},
		Interfaces: []schemas.HardwareInterface{{Boot: true, DHCP: schemas.HardwareDHCP{MAC: "02:00:00:00:00:01"}}},
		Disks:      []schemas.HardwareDisk{{Device: "/dev/nvme0n1", Boot: true}},
	}
}

func TestATemplateIsRenderedForAServer(t *testing.T) {
	text, steps, masked, err := provision.Render(t.Context(), body(good), map[string]any{"image_url": "http://a/b"}, record(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`worker: "02:00:00:00:00:01"`, "DEST_DISK: /dev/nvme0n1", `IMG_URL: "http://a/b"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if len(steps) != 2 || steps[1].Name != "reboot" || steps[1].Timeout != 90 || len(masked) != 0 {
		t.Errorf("%+v %v", steps, masked)
	}
	for name, tc := range map[string]struct {
		given map[string]any
		spoil func(*schemas.HardwareRecord)
		want  string
	}{
		"nothing given":          {nil, nil, "parameters.image_url: is needed"},
		"no such parameter":      {map[string]any{"image_url": "http://a/b", "image": "x"}, nil, "parameters.image: is no parameter of this template"},
		"not as the schema says": {map[string]any{"image_url": "no address"}, nil, "parameters.image_url: 'no address' is not valid uri"},
		"what breaks the YAML":   {map[string]any{"image_url": "http://a/\"b"}, nil, "text, line 14: is no YAML of a workflow: did not find expected key, in what begins here"},
		"another architecture": {
			map[string]any{"image_url": "http://a/b"},
			func(r *schemas.HardwareRecord) { r.Facts[0].Value = schemas.ArchARM },
			"server: is aarch64, and the template is for x86_64",
		},
		"no address to boot by": {
			map[string]any{"image_url": "http://a/b"},
			func(r *schemas.HardwareRecord) { r.Interfaces[0].Boot = false },
			"text, line 6: the task install has no worker: the MAC address that the hardware boots by is not known",
		},
		"no disk to install on": {map[string]any{"image_url": "http://a/b"}, func(r *schemas.HardwareRecord) { r.Disks[0].Boot = false }, "text, line 14:"},
	} {
		r := record()
		if tc.spoil != nil {
			tc.spoil(r)
		}
		if _, _, _, err := provision.Render(t.Context(), body(good), tc.given, r, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nobody who reads a rendered text, or an error, reads a secret.
func TestSecretsAreReferencesAndMasked(t *testing.T) {
	b := body(strings.Replace(good, `command: ["reboot"]`, `environment: {TOKEN: {{ .token | b64enc | quote }}, USER: {{ .join | default "none" }}}`, 1))
	properties := b.Parameters["properties"].(map[string]any)
	properties["token"] = map[string]any{"type": "string", "writeOnly": true, "minLength": 100}
	properties["join"] = map[string]any{"type": "string", "format": "password"}
	b.Parameters["required"] = []any{"image_url", "token"}
	if err := provision.Check(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	given := map[string]any{"image_url": "http://a/b", "token": "secret:join-token"}
	text, _, masked, err := provision.Render(t.Context(), b, given, record(), nil)
	if err != nil || !strings.Contains(text, `TOKEN: "KGhpZGRlbik="`) || len(masked) != 1 || masked[0] != "token" { // (hidden)
		t.Errorf("%v %v\n%s", err, masked, text)
	}
	secrets := func(_ context.Context, name string) (string, error) {
		if name != "join-token" {
			return "", errors.New("there is none")
		}
		return "hunter2", nil
	}
	if text, _, _, err = provision.Render(t.Context(), b, given, record(), secrets); err != nil || !strings.Contains(text, `TOKEN: "aHVudGVyMg=="`) {
		t.Errorf("%v\n%s", err, text)
	}
	given["token"] = "hunter2"
	if _, _, _, err = provision.Render(t.Context(), b, given, record(), nil); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "parameters.token: is no reference") {
		t.Error(err)
	}
	// A secret that breaks the text is not quoted either.
	b.Text = strings.Replace(good, "name: ubuntu", "name: {{ .token }}", 1)
	given["token"] = "secret:x"
	_, _, _, err = provision.Render(t.Context(), b, given, record(), func(context.Context, string) (string, error) { return "[hunter2", nil })
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "with its secrets filled in") {
		t.Error(err)
	}
}

func TestTextsBecomeWhatTheSchemaWants(t *testing.T) {
	b := body(good)
	b.Parameters = map[string]any{"type": "object", "properties": map[string]any{
		"n": map[string]any{"type": "integer"}, "on": map[string]any{"type": "boolean"}, "list": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		"s": map[string]any{"type": "string"}, "any": map[string]any{},
	}}
	got, err := provision.Values(b, map[string]string{"n": "3", "on": "true", "list": `["a"]`, "s": "3", "any": "3", "strange": "x"})
	want := map[string]any{"n": 3.0, "on": true, "list": []any{"a"}, "s": "3", "any": "3", "strange": "x"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if _, err := provision.Values(b, map[string]string{"n": "secret value"}); err == nil || strings.Contains(err.Error(), "secret value") || !strings.Contains(err.Error(), "parameters.n: is no JSON of type integer") {
		t.Error(err)
	}
}

// What a request gives to a template is checked before it is kept, and is the same once it is the texts of a step.
func TestWhatARequestGives(t *testing.T) {
	b := body(good)
	b.Parameters = map[string]any{"type": "object", "required": []any{"s"}, "properties": map[string]any{
		"n": map[string]any{"type": "integer"}, "on": map[string]any{"type": "boolean"}, "list": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		"s": map[string]any{"type": "string", "examples": []any{"x"}}, "any": map[string]any{}, "token": map[string]any{"type": "string", "writeOnly": true},
	}}
	good := map[string]any{"n": 3.0, "on": true, "list": []any{"a"}, "s": "3", "any": "x", "token": "secret:join"}
	texts, secrets, err := provision.Given(b, good)
	want := map[string]string{"n": "3", "on": "true", "list": `["a"]`, "s": "3", "any": "x", "token": "secret:join"}
	if d := cmp.Diff(want, texts); d != "" || err != nil || len(secrets) != 1 || secrets[0] != "token" {
		t.Error(d, secrets, err)
	}
	for field, given := range map[string]map[string]any{
		"parameters.s": nil, "parameters.n": {"s": "x", "n": "three"}, "parameters.m": {"s": "x", "m": 1}, "parameters.any": {"s": "x", "any": 3.0},
		"parameters.token": {"s": "x", "token": "hunter2"}, "parameters.list.0": {"s": "x", "list": []any{1.0}},
		"parameters.on": {"s": strings.Repeat("x", 2000), "on": 1.0},
	} {
		var faults provision.Faults
		if _, _, err := provision.Given(b, given); !errors.As(err, &faults) || faults[0].Field != field || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, _, err := provision.Given(b, map[string]any{"s": strings.Repeat("x", 2000)}); err == nil || !strings.Contains(err.Error(), "longer than 1024 bytes") {
		t.Error(err)
	}
}
