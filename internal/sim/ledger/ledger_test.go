package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEntriesAreAppendedAtOnceAndTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var entries []Entry
	for i := range 2 { // a second run goes on in the same file
		w, err := Open(path, func(e Entry) { entries = append(entries, e) })
		if err != nil {
			t.Fatal(err)
		}
		w.Write(Entry{
			Time: at, Kind: KindReset, Device: "gpu-r01-01", Protocol: "redfish", Type: "accepted", Code: "PowerCycle", RequestID: "a",
			Record: uint64(i),
		})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []Entry
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var e Entry
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if d := cmp.Diff(entries, got); d != "" || len(got) != 2 {
		t.Errorf("%d entries in the file: %s", len(got), d)
	}
}

func TestAWriteThatFailsIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	w, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.file.Rest(), os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	w.Write(Entry{Kind: KindFault})
	if w.Err() == nil {
		t.Error("nobody is told that the ledger has a hole")
	}
}
