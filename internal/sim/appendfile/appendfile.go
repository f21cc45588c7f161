// Package appendfile writes the logs of the simulator, and goes on where the disk is full: what finds
// no room waits in memory, in order, and follows when there is room again.
package appendfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// File is appended to line by line. It is not safe for use by several goroutines at the same time.
type File struct {
	open func() (*os.File, error)
	file *os.File
	most int    // bytes that may wait
	wait []byte // what has found no room yet; its first line may stand half in the file
	lost uint64
}

// New returns a file that open opens for appending when there is something to write. At most so many
// bytes wait for room.
func New(most int, open func() (*os.File, error)) *File { return &File{open: open, most: most} }

// Open opens the file now, so that it is there though nothing was written. A full disk is no error.
func (f *File) Open() error {
	if f.file != nil {
		return nil
	}
	file, err := f.open()
	if err != nil {
		return unlessFull(err)
	}
	f.file = file
	return nil
}

// Write appends a line with its end, now or when there is room. It reports false where the line is
// lost, as too many wait. A full disk is no error.
func (f *File) Write(line []byte) (bool, error) {
	if len(f.wait) > 0 && len(f.wait)+len(line) > f.most {
		f.lost++
		return false, nil
	}
	f.wait = append(f.wait, line...)
	return true, f.Flush()
}

// Flush writes what waits, as far as there is room.
func (f *File) Flush() error {
	if len(f.wait) == 0 {
		return nil
	}
	if err := f.Open(); err != nil || f.file == nil {
		return err
	}
	n, err := f.file.Write(f.wait)
	f.wait = append(f.wait[:0], f.wait[n:]...)
	return unlessFull(err)
}

// Waiting returns how many bytes wait for room, and how many lines found none in memory either.
func (f *File) Waiting() (bytes int, lost uint64) { return len(f.wait), f.lost }

// Rest closes the file until the next line, unless something waits.
func (f *File) Rest() error {
	if f.file == nil || len(f.wait) > 0 {
		return nil
	}
	return f.shut()
}

// Close writes what waits and closes the file. It is an error if that finds no room now.
func (f *File) Close() error {
	err := f.Flush()
	if n := len(f.wait); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d bytes found no room: %w", n, syscall.ENOSPC))
	}
	f.wait = nil
	return errors.Join(err, f.shut())
}

// Discard closes the file and forgets what waits.
func (f *File) Discard() {
	f.wait = nil
	_ = f.shut()
}

func (f *File) shut() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	return file.Close()
}

// Mend cuts off the line that a process which ended on a full disk left half written. It returns the
// file's whole lines; a file that is not there is an error of the kind [os.ErrNotExist].
func Mend(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if whole == len(data) {
		return data, nil
	}
	return data[:whole], os.Truncate(path, int64(whole))
}

// Full says whether an error is of a disk without room, or of an account that may use no more of it.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func unlessFull(err error) error {
	if Full(err) {
		return nil
	}
	return err
}
