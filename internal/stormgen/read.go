package stormgen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"auspex/internal/textfile"
	"auspex/schemas"
)

// Read reads a storm from a folder of topology.json, events.jsonl and truth.json, each of
// which may be packed and called .gz.
func Read(dir string) (*Storm, error) {
	st := &Storm{Topology: &schemas.Topology{}}
	if err := each(dir, "topology.json", st.Topology, func() {}); err != nil {
		return nil, err
	}
	if err := each(dir, "truth.json", &st.Truth, func() {}); err != nil {
		return nil, err
	}
	var ev schemas.Event
	err := each(dir, "events.jsonl", &ev, func() {
		st.Events = append(st.Events, ev)
		ev = schemas.Event{}
	})
	return st, err
}

// each reads the documents of a file one by one into v, and calls f after each.
func each(dir, name string, v any, f func()) error {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path += ".gz"
	}
	in, err := textfile.Open(path, nil, 0)
	if err != nil {
		return fmt.Errorf("read storm: %w", err)
	}
	for d := json.NewDecoder(in); ; f() {
		if err = d.Decode(v); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("read storm %s: %w", path, err)
	}
	return nil
}
