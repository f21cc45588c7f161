package textfile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

func gzipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, s); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPackedTextIsToldByItsBytesAndNotByAName(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	const text = "\ufeffone\ntwo\n"
	for name, b := range map[string][]byte{
		"plain": []byte(text), "plain.gz": []byte("one\ntwo\n"), "gzip": gzipped(t, text), "two members.gz": append(
			gzipped(t, "\ufeffone\n"), gzipped(t, "two\n")...,
		),
		"zstandard": z.EncodeAll([]byte(text), nil), "utf-16": []byte("\xff\xfeo\x00n\x00e\x00\n\x00t\x00w\x00o\x00\n\x00"),
		"utf-16be.gz": gzipped(t, "\xfe\xff\x00o\x00n\x00e\x00\n\x00t\x00w\x00o\x00\n"),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for how, from := range map[string]string{"file": path, "standard input": Stdin} {
			if got, err := ReadFile(from, bytes.NewReader(b)); err != nil || string(got) != "one\ntwo\n" {
				t.Errorf("%s from %s: %q, %v", name, how, got, err)
			}
		}
	}
}

func TestTornFileIsAnErrorWithItsName(t *testing.T) {
	b := gzipped(t, strings.Repeat("a line of text\n", 100))
	path := filepath.Join(t.TempDir(), "torn.gz")
	if err := os.WriteFile(path, b[:len(b)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, nil); err == nil || !strings.Contains(err.Error(), "torn.gz: ") {
		t.Errorf("got %v", err)
	}
	if got, err := ReadFile(Stdin, strings.NewReader("")); err != nil || len(got) != 0 {
		t.Errorf("empty input: %q, %v", got, err)
	}
}

// A text ends with an error, and not with an end, where it holds more than it may;
// what is packed is counted unpacked.
func TestATextHoldsNoMoreThanItMay(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("a line\n", 1000)
	for name, b := range map[string][]byte{"plain": []byte(text), "gzip": gzipped(t, text), "zstandard": z.EncodeAll([]byte(text), nil)} {
		for most, fits := range map[int64]bool{0: true, 1: false, 6999: false, 7000: true, 7001: true} {
			r, err := NewReader(bytes.NewReader(b), most)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if fits && (err != nil || len(got) != len(text)) || !fits && (!errors.Is(err, ErrTooLarge) || int64(len(got)) != most) {
				t.Errorf("%s, at most %d: %d bytes, %v", name, most, len(got), err)
			}
			_ = r.Close()
		}
	}
}

// A file that is read as a whole is bounded by itself.
func TestABombIsNotReadWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb.json.gz")
	block := gzipped(t, strings.Repeat(" ", 1<<20))
	if err := os.WriteFile(path, bytes.Repeat(block, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := readFile(path, nil, 32<<20); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "bomb.json.gz") ||
		len(b) > 32<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if b, err := ReadFile(path, nil); err != nil || len(b) != 64<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestReasonSpeaksOfTheFormat(t *testing.T) {
	var into struct {
		Time  time.Time         `json:"time"`
		Code  string            `json:"code"`
		Attrs map[string]string `json:"attrs"`
		Limit *float64          `json:"limit"`
	}
	for in, want := range map[string]string{
		`[]`:                  "want object, got array",
		`{"code":79}`:         "code: want string, got number",
		`{"attrs":7}`:         "attrs: want object, got number",
		`{"limit":"x"}`:       "limit: want number, got string",
		`{"time":"tomorrow"}`: `time "tomorrow" is not RFC 3339`,
		`{"code":`:            "unexpected end of JSON input",
	} {
		if got := Reason(json.Unmarshal([]byte(in), &into)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
