package schemas_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"auspex/schemas"
)

func drawn(r *rand.Rand) map[string]string {
	words := []string{"", "a", "serial", "model", "ünï", "x y", `q"uote`, "back\\slash", "<&>", "tab\t", strings.Repeat("k", 127), strings.Repeat("v", 128), strings.Repeat("w", 20000)}
	m := map[string]string{}
	for range r.IntN(6) {
		m[words[r.IntN(len(words))]] = words[r.IntN(len(words))]
	}
	return m
}

// Attributes are the map that they are made of, in each of their operations.
func TestAttributesAreTheirMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		m, other := drawn(r), drawn(r)
		a, b := schemas.AttrsOf(m), schemas.AttrsOf(other)
		if !maps.Equal(a.Map(), m) || a.Len() != len(m) || a.IsZero() != (len(m) == 0) || (a == b) != maps.Equal(m, other) {
			t.Fatalf("%q: %q", m, a.Map())
		}
		for k := range other {
			want, there := m[k]
			if got, ok := a.Lookup(k); got != want || ok != there || a.Get(k) != want {
				t.Fatalf("%q of %q: %q %v", k, m, got, ok)
			}
			with, without := maps.Clone(m), maps.Clone(m)
			with[k] = "new"
			delete(without, k)
			if a.With(k, "new") != schemas.AttrsOf(with) || a.Without(k) != schemas.AttrsOf(without) {
				t.Fatalf("%q with and without %q", m, k)
			}
		}
		joined, common := maps.Clone(m), maps.Clone(m)
		maps.Copy(joined, other)
		maps.DeleteFunc(common, func(k, v string) bool { w, ok := other[k]; return !ok || v != w })
		if a.Join(b) != schemas.AttrsOf(joined) || a.Common(b) != schemas.AttrsOf(common) {
			t.Fatalf("%q and %q: %q, %q", m, other, a.Join(b).Map(), a.Common(b).Map())
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var back schemas.Attrs
		if err := json.Unmarshal(text, &back); err != nil || back != a {
			t.Fatalf("%s: %q %v", text, back.Map(), err)
		}
	}
}

// What is read from an object is what encoding/json reads into a map, whatever it is.
func FuzzAttributesOfAnObject(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"a":"b"}`, `{"b":"1","a":"2"}`, `{"a":"1","a":"2"}`, `{"a":"1",}`, `{"a":1}`, `{"a":null}`, `{ "a" : "b" }`, `{"a":"b"`, `{"a"}`, `{"a":"b":"c"}`,
		`{"a":"b""c":"d"}`, `{"":""}`, `{"a":"\u00e9"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\n\"}", `[]`, `"x"`, `{"a":"b"},`, `{,"a":"b"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want map[string]string
		var got schemas.Attrs
		err, err2 := json.Unmarshal([]byte(text), &want), json.Unmarshal([]byte(text), &got)
		if (err == nil) != (err2 == nil) || err == nil && got != schemas.AttrsOf(want) {
			t.Fatalf("%q: %q %v; want %q %v", text, got.Map(), err2, want, err)
		}
	})
}

func TestReadingAttributesAllocatesNothing(t *testing.T) {
	a := schemas.AttrsOf(map[string]string{"model": "H100", "serial": "1", "uuid": "u"})
	if n := testing.AllocsPerRun(100, func() {
		if a.Get("uuid") != "u" || a.Get("none") != "" {
			t.Fail()
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// What is written is what encoding/json writes of the map.
func TestAttributesAreWrittenAsTheirMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		m := drawn(r)
		want, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(schemas.AttrsOf(m)); err != nil || string(got) != string(want) {
			t.Fatalf("%s %v; want %s", got, err, want)
		}
	}
}
