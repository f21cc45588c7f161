// Package datafile keeps what Auspex stores to its own user: files 0600 and
// folders 0700, whatever the umask, and whatever an earlier run left.
package datafile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Umask makes every file and folder that this process and its children make from
// now on private. Libraries that choose modes of their own cannot widen it.
func Umask() { syscall.Umask(0o077) }

// Reserve makes a file private before a library opens it, with the companions
// that SQLite gives the same mode. A file that is not there is made.
func Reserve(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, companion := range []string{"", "-wal", "-shm", "-journal"} {
		if err := narrow(file + companion); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Narrow makes the named entries of a folder private, with all that is below
// them. The folder itself may be somebody else's, such as a home: it is narrowed
// only where it holds nothing but these entries.
func Narrow(dir string, entries ...string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	alone := true
	for _, e := range found {
		if !slices.ContainsFunc(entries, func(pattern string) bool { ok, _ := filepath.Match(pattern, e.Name()); return ok }) {
			alone = false
			continue
		}
		err := filepath.WalkDir(filepath.Join(dir, e.Name()), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = narrow(path)
			}
			if errors.Is(err, fs.ErrNotExist) { // of a child that runs on
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("make %s private: %w", e.Name(), err)
		}
	}
	if !alone {
		return nil
	}
	return narrow(dir)
}

// narrow takes the rights of others away. Links are left alone, and so is what
// belongs to another user.
func narrow(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode()&fs.ModeSymlink != 0 || info.Mode().Perm()&0o077 == 0 || ok && int(own.Uid) != os.Geteuid() {
		return nil
	}
	return os.Chmod(path, info.Mode().Perm()&0o700)
}

// Replace writes a file anew, whole, to the disk: after a crash at any moment it holds what
// it held before or what it was given.
func Replace(file string, content []byte) error {
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil { // a rename may come to the disk before what it names
		return err
	}
	if err := os.Rename(next, file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
