// Package secrets resolves references of the inventory to credentials. They come
// from a file that only its owner can read; no value is ever logged or shown.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync/atomic"

	"go.yaml.in/yaml/v3"
)

// ErrUnknown is wrapped when a reference has no credential.
var ErrUnknown = errors.New("no such credential")

// Credential is a user and a password. It prints without them.
type Credential struct {
	User     string `yaml:"user"`
	Password string `yaml:"password"`
}

// String hides the credential.
func (Credential) String() string { return "(hidden)" }

// GoString hides the credential.
func (Credential) GoString() string { return "(hidden)" }

// File holds the credentials of a YAML file: references mapped to user and
// password. It is immutable.
type File struct{ m map[string]Credential }

// Read reads a secrets file. An empty name is an empty file. A file that others
// can read is refused.
func Read(name string) (*File, error) {
	f := &File{}
	if name == "" {
		return f, nil
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read secrets: others can read %s (mode %04o); run: chmod 600 %s", name, st.Mode().Perm(), name)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	if err := yaml.Unmarshal(b, &f.m); err != nil {
		// The parser's message may quote a value: its line is all that is told.
		at := ""
		if m := line.FindStringSubmatch(err.Error()); m != nil {
			at = ":" + m[1]
		}
		return nil, fmt.Errorf("read secrets: %s%s: not YAML of the form `name: {user: …, password: …}`", name, at)
	}
	return f, nil
}

var line = regexp.MustCompile(`line (\d+)`)

// Store answers from the file that was set last. It may be changed while it is
// read; before the first file it knows nothing.
type Store struct{ f atomic.Pointer[File] }

// Set replaces all credentials by those of a file.
func (s *Store) Set(f *File) { s.f.Store(f) }

// Secret returns the user and the password behind a reference.
func (s *Store) Secret(ctx context.Context, ref string) (user, password string, err error) {
	f := s.f.Load()
	if f == nil {
		f = &File{}
	}
	return f.Secret(ctx, ref)
}

// Secret returns the user and the password behind a reference.
func (f *File) Secret(_ context.Context, ref string) (user, password string, err error) {
	c, ok := f.m[ref]
	if !ok {
		return "", "", fmt.Errorf("credential %q: %w", ref, ErrUnknown)
	}
	return c.User, c.Password, nil
}
