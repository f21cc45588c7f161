package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"auspex/internal/target"
)

// maxFile bounds what is read of a file: an attribute of sysfs is at most a page.
const maxFile = 4096

// maxEntries bounds what is told of one kind of thing.
const maxEntries = 1024

var (
	errMalformed = errors.New("malformed")
	errTooLong   = fmt.Errorf("%w: longer than %d bytes", errMalformed, maxFile)
)

// machine is how one source reads: its files, one buffer, and what went wrong. It is
// for one goroutine.
type machine struct {
	cfg  *Config
	tree *target.Tree
	ctx  context.Context // of Run: the interface of a source has none

	files   Files   // nil are this machine's
	journal Journal // nil is none
	boot    string
	state   string // the file of what is known over restarts; empty is none

	buf     []byte
	open    map[*file]struct{}
	first   error // of this reading
	more    int
	garbled uint64
}

func newMachine(cfg *Config, tree *target.Tree) *machine {
	return &machine{cfg: cfg, tree: tree, ctx: context.Background(), buf: make([]byte, maxFile+1), open: map[*file]struct{}{}}
}

func (m *machine) sys(elem ...string) string {
	return filepath.Join(append([]string{m.cfg.Sys}, elem...)...)
}

func (m *machine) proc(elem ...string) string {
	return filepath.Join(append([]string{m.cfg.Proc}, elem...)...)
}

// fault keeps why something could not be read. The first of a reading is told.
func (m *machine) fault(err error) {
	if errors.Is(err, errMalformed) {
		m.garbled++
	}
	if m.first == nil {
		m.first = err
		return
	}
	m.more++
}

// faults ends a reading: the sentence of what went wrong, and how much was malformed.
func (m *machine) faults() (sentence string, garbled uint64) {
	if m.first != nil {
		sentence = m.first.Error()
		if m.more > 0 {
			sentence += fmt.Sprintf(" (and %d more)", m.more)
		}
	}
	garbled = m.garbled
	m.first, m.more, m.garbled = nil, 0, 0
	return sentence, garbled
}

// file is a small file that is read again and again; it stays open. The kernel makes its
// content anew for each read at its begin.
type file struct {
	path string
	fd   int // less than 0 is closed
}

func newFile(path string) file { return file{path: path, fd: -1} }

// content reads a file, without the white space at its end. The bytes are the machine's
// until the next call.
func (m *machine) content(f *file) ([]byte, error) {
	if m.files != nil {
		n, err := m.files.Read(f.path, m.buf)
		switch {
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: f.path, Err: err}
		case n > maxFile:
			return nil, fmt.Errorf("%s: %w", f.path, errTooLong)
		}
		return bytes.TrimRight(m.buf[:n], " \t\r\n\x00"), nil
	}
	for fresh := false; ; {
		if f.fd < 0 {
			fd, err := uninterrupted(func() (int, error) {
				return syscall.Open(f.path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
			})
			if err != nil {
				return nil, &fs.PathError{Op: "open", Path: f.path, Err: err}
			}
			f.fd, fresh = fd, true
			m.open[f] = struct{}{}
		}
		n, err := uninterrupted(func() (int, error) { return syscall.Pread(f.fd, m.buf, 0) })
		switch {
		case err != nil:
			m.shut(f) // its device may be gone, and another have come under its name
			if fresh {
				return nil, &fs.PathError{Op: "read", Path: f.path, Err: err}
			}
			continue
		case n > maxFile:
			m.shut(f)
			return nil, fmt.Errorf("%s: %w", f.path, errTooLong)
		}
		return bytes.TrimRight(m.buf[:n], " \t\r\n\x00"), nil
	}
}

func uninterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

func (m *machine) shut(f *file) {
	if f.fd >= 0 {
		_ = syscall.Close(f.fd)
		f.fd = -1
		delete(m.open, f)
	}
}

// close ends all reading.
func (m *machine) close() {
	for f := range m.open {
		m.shut(f)
	}
}

// absent reports whether an error says that there is no such thing now: an attribute
// that a driver does not have, one that has no value while an interface is down, a
// device that went.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) ||
		errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODATA) ||
		errors.Is(err, syscall.ENOTDIR)
}

// names lists a folder in order, without what begins with a dot; a folder that is not
// there is empty.
func (m *machine) names(dir string) []string {
	names, err := m.list(dir)
	if err != nil && !absent(err) {
		m.fault(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' || !plain(name) })
	slices.Sort(names)
	return names
}

func (m *machine) list(dir string) ([]string, error) {
	if m.files != nil {
		return m.files.Names(dir)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

// link returns where a symbolic link leads; empty is none.
func (m *machine) link(path string) string {
	if m.files != nil {
		return m.files.Link(path)
	}
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return to
}

// plain reports whether a name is one that people can read: ASCII that prints.
func plain(name string) bool {
	return name != "" && len(name) <= 256 && strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// kind says which field of a value counts.
type kind uint8

const (
	nothing kind = iota
	isNumber
	isFloat
	isBool
	isText
)

// value is what was read of a leaf.
type value struct {
	kind kind
	n    uint64
	f    float64
	s    string
}

func (v *value) number(n uint64) { v.kind, v.n = isNumber, n }

func (v *value) float(f float64) { v.kind, v.f = isFloat, f }

func (v *value) bool(b bool) {
	v.kind, v.n = isBool, 0
	if b {
		v.n = 1
	}
}

// text keeps a string that is the same as before, and allocates for a new one alone.
func (v *value) text(b []byte) {
	v.kind = isText
	if v.s != string(b) {
		v.s = string(b)
	}
}

func (v *value) write(w *target.Writer, ref target.Ref) {
	switch v.kind {
	case isNumber:
		w.Uint(ref, v.n)
	case isFloat:
		w.Float(ref, v.f)
	case isBool:
		w.Bool(ref, v.n != 0)
	case isText:
		w.Text(ref, v.s)
	default:
		w.None(ref)
	}
}

// attr is a file of a folder, and the leaf that tells what it says. A scan that sets no
// value finds that there is none.
type attr struct {
	file, leaf string
	scan       func(v *value, b []byte) error
}

// reading is an attr of one thing.
type reading struct {
	attr
	file  file
	ref   target.Ref
	value value
}

// item is one thing with its leaves: an entry of a list, or a container.
type item struct {
	path     string // in the tree
	identity string // what makes it another thing under the same name
	fixed    []fixed
	readings []*reading
	seen     bool
}

// fixed is a leaf that does not come from a file of an attr.
type fixed struct {
	ref   target.Ref
	value value
}

// newItem makes the leaves of what a folder tells.
func (m *machine) newItem(path, folder string, attrs []attr) *item {
	it := &item{path: path}
	for _, a := range attrs {
		it.readings = append(it.readings, &reading{attr: a, file: newFile(filepath.Join(folder, a.file)), ref: m.tree.Leaf(path + "/state/" + a.leaf)})
	}
	return it
}

// text adds a leaf that stays as it is, where there is something to tell.
func (m *machine) text(it *item, leaf, s string) {
	if s != "" {
		it.fixed = append(it.fixed, fixed{m.tree.Leaf(it.path + "/state/" + leaf), value{kind: isText, s: s}})
	}
}

// read reads all attributes of a thing.
func (m *machine) read(it *item) {
	for _, r := range it.readings {
		m.scan(&r.file, &r.value, r.attr.scan)
	}
}

// scan reads a file into a value, which is none where the file has none.
func (m *machine) scan(f *file, v *value, scan func(*value, []byte) error) {
	v.kind = nothing
	b, err := m.content(f)
	if err != nil {
		if !absent(err) {
			m.fault(err)
		}
		return
	}
	if err := scan(v, b); err != nil {
		v.kind = nothing
		m.fault(fmt.Errorf("%s: %w", f.path, err))
	}
}

func (it *item) write(w *target.Writer) {
	for i := range it.fixed {
		it.fixed[i].value.write(w, it.fixed[i].ref)
	}
	for _, r := range it.readings {
		r.value.write(w, r.ref)
	}
}

// list is a list of the tree whose entries come and go with what the machine has.
type list struct {
	m     *machine
	path  string           // of the list, without key
	items map[string]*item // by key; nil is nothing to tell of
}

func newList(m *machine, path string) *list {
	return &list{m: m, path: path, items: map[string]*item{}}
}

// begin begins a reading.
func (l *list) begin() {
	for _, it := range l.items {
		it.seen = false
	}
}

// entry returns the entry of a name, or makes it anew where there is none, or the thing
// is another one than before.
func (l *list) entry(name, identity, folder string, attrs []attr) (it *item, fresh bool) {
	if it = l.items[name]; it != nil && it.identity == identity {
		it.seen = true
		return it, false
	}
	if it != nil {
		l.drop(name, it)
	}
	if len(l.items) >= maxEntries {
		l.m.fault(fmt.Errorf("%s: only the first %d are told", l.path, maxEntries))
		return nil, false
	}
	it = l.m.newItem(l.path+"[name="+target.Key(name)+"]", folder, attrs)
	it.identity, it.seen = identity, true
	l.m.text(it, "name", name)
	l.items[name] = it
	return it, true
}

// end drops what is no more.
func (l *list) end() {
	for name, it := range l.items {
		if !it.seen {
			l.drop(name, it)
		}
	}
}

func (l *list) drop(name string, it *item) {
	for _, r := range it.readings {
		l.m.shut(&r.file)
	}
	l.m.tree.Drop(it.path)
	delete(l.items, name)
}

// write tells all entries as one group.
func (l *list) write(at time.Time) {
	w := l.m.tree.Write(at)
	defer w.Close()
	for _, it := range l.items {
		it.write(&w)
	}
}

// Scans of what files hold.

func number(v *value, b []byte) error {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return unexpected("a number", b)
	}
	v.number(n)
	return nil
}

// text reads a string that people can read; an empty one is no value.
func text(v *value, b []byte) error {
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return unexpected("a text", b)
		}
	}
	v.text(b)
	return nil
}

// hex reads a number as C writes it, with 0x.
func hex(v *value, b []byte) error {
	n, err := strconv.ParseUint(string(b), 0, 64)
	if err != nil {
		return unexpected("a hexadecimal number", b)
	}
	v.number(n)
	return nil
}

// unexpected says what a file should hold, and a part of what it does.
func unexpected(want string, b []byte) error {
	const most = 40
	return fmt.Errorf("%w: %s is expected, not %q", errMalformed, want, b[:min(len(b), most)])
}
