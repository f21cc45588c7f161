package filewatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	// onFile are changes of a file. One that is removed while somebody has it open is told as a
	// change of its attributes.
	onFile = syscall.IN_MODIFY | syscall.IN_ATTRIB | syscall.IN_MOVE_SELF | syscall.IN_DELETE_SELF
	// inFolder are those after which a name may stand for another file, or may be read.
	inFolder = syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_ATTRIB | syscall.IN_ONLYDIR
)

// local are file systems that nobody changes but this kernel (statfs(2)). Of an overlay's file
// that is copied up the kernel does not tell (Documentation/filesystems/overlayfs.rst).
var local = map[int64]bool{
	0xef53: true, 0x58465342: true, 0x9123683e: true, 0x01021994: true, 0x2fc12fc1: true, 0xf2f52010: true, 0x858458f6: true, 0xca451a4e: true,
}

// notices are what a watch has asked the kernel for; 0 is nothing.
type notices struct{ file, folder int32 }

// arm asks for notices of what the path stands for now, and says whether they tell all.
func (w *Watch) arm() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	dir, name := filepath.Split(filepath.Clean(w.path))
	if dir == "" {
		dir = "."
	}
	missing := all.ask(w, &w.folder, dir, inFolder, name)
	err := all.ask(w, &w.file, w.path, onFile, "")
	on := w.path
	if errors.Is(err, syscall.ENOENT) {
		on, err = dir, missing
	}
	var fs syscall.Statfs_t
	return err == nil && syscall.Statfs(on, &fs) == nil && local[fs.Type]
}

// Close ends the watch.
func (w *Watch) Close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.leave(w, &w.file)
	all.leave(w, &w.folder)
	if len(all.by) == 0 && all.file != nil {
		_ = all.file.Close()
		all.file = nil
	}
}

// all are the watches of this process. They share an instance of inotify, of which a user has
// 128 as a rule (fs.inotify.max_user_instances).
var all instance

type instance struct {
	mu   sync.Mutex
	file *os.File // nil while there are no watches
	fd   int
	by   map[int32]map[*Watch]string // of which name in a folder each wants to know; empty is any
}

// ask asks for notices in the place of those that a watch had.
func (i *instance) ask(w *Watch, had *int32, path string, mask uint32, name string) error {
	if i.file == nil {
		fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
		if err != nil {
			return err
		}
		i.fd, i.file, i.by = fd, os.NewFile(uintptr(fd), "inotify"), map[int32]map[*Watch]string{}
		go i.read(i.file)
	}
	n, err := syscall.InotifyAddWatch(i.fd, path, mask)
	if err != nil {
		i.leave(w, had)
		return err
	}
	if d := int32(n); d != *had {
		i.leave(w, had)
		if *had = d; i.by[d] == nil {
			i.by[d] = map[*Watch]string{}
		}
		i.by[d][w] = name
	}
	return nil
}

func (i *instance) leave(w *Watch, had *int32) {
	if *had == 0 {
		return
	}
	if delete(i.by[*had], w); len(i.by[*had]) == 0 {
		delete(i.by, *had)
		_, _ = syscall.InotifyRmWatch(i.fd, uint32(*had)) // it went with its file, perhaps
	}
	*had = 0
}

// read hands out notices until the instance is closed.
func (i *instance) read(file *os.File) {
	buf := make([]byte, 64*(syscall.SizeofInotifyEvent+syscall.NAME_MAX+1))
	for {
		n, err := file.Read(buf)
		if err != nil {
			return
		}
		i.mu.Lock()
		if i.file != file {
			i.mu.Unlock()
			return
		}
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			d, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			end := syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			name := string(bytes.TrimRight(b[syscall.SizeofInotifyEvent:end], "\x00"))
			b = b[end:]
			if mask&syscall.IN_Q_OVERFLOW != 0 { // of anything
				for _, watches := range i.by {
					for w := range watches {
						w.notify()
					}
				}
			}
			for w, want := range i.by[d] {
				if want == "" || want == name {
					w.notify()
				}
			}
		}
		i.mu.Unlock()
	}
}
