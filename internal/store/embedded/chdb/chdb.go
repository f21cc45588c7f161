// Package chdb binds libchdb, the ClickHouse engine as a shared library, without
// cgo. It is meant for the child process that serves the engine (package
// embedded): the library takes over signal handlers and memory, and holds one
// data directory a process.
package chdb

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

type ptr = unsafe.Pointer

// The C functions that are used, of chdb.h.
var (
	chdbConnect           func(argc int32, argv ptr) ptr
	chdbCloseConn         func(ptr)
	chdbQuery             func(conn, query ptr, queryLen uintptr, format ptr, formatLen uintptr) ptr
	chdbDestroyResult     func(ptr)
	chdbResultBuffer      func(ptr) ptr
	chdbResultLength      func(ptr) uintptr
	chdbResultError       func(ptr) ptr
	chdbStreamInsert      func(conn, query ptr, queryLen uintptr, format ptr, formatLen uintptr) ptr
	chdbStreamAppend      func(stream, data ptr, n uintptr) int32
	chdbStreamDone        func(stream ptr) ptr
	chdbStreamInsertError func(stream ptr) ptr
	chdbDestroyInsert     func(stream ptr)
	chdbStreamQuery       func(conn, query ptr, queryLen uintptr, format ptr, formatLen uintptr) ptr
	chdbStreamFetch       func(conn, stream ptr) ptr
	chdbStreamCancel      func(conn, stream ptr)
	chdbSetSignalHandlers func(enabled int32)
	libcSigaction         func(sig int32, act, old ptr) int32
	loadOnce              sync.Once
	errLoad               error
	errNoResult           = errors.New("the engine returned no result")
	symbols               = map[string]any{
		"chdb_connect":                     &chdbConnect,
		"chdb_close_conn":                  &chdbCloseConn,
		"chdb_query_n":                     &chdbQuery,
		"chdb_destroy_query_result":        &chdbDestroyResult,
		"chdb_result_buffer":               &chdbResultBuffer,
		"chdb_result_length":               &chdbResultLength,
		"chdb_result_error":                &chdbResultError,
		"chdb_stream_insert_n":             &chdbStreamInsert,
		"chdb_stream_append":               &chdbStreamAppend,
		"chdb_stream_done":                 &chdbStreamDone,
		"chdb_stream_insert_error":         &chdbStreamInsertError,
		"chdb_destroy_insert_stream":       &chdbDestroyInsert,
		"chdb_stream_query_n":              &chdbStreamQuery,
		"chdb_stream_fetch_result":         &chdbStreamFetch,
		"chdb_stream_cancel_query":         &chdbStreamCancel,
		"chdb_set_signal_handlers_enabled": &chdbSetSignalHandlers,
	}
)

// Load opens the shared library, once a process; later calls return the result
// of the first.
func Load(library string) error {
	loadOnce.Do(func() { errLoad = load(library) })
	return errLoad
}

func load(library string) error {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return fmt.Errorf("load %s: %w", library, err)
	}
	for name, f := range symbols {
		sym, err := purego.Dlsym(lib, name)
		if err != nil {
			return fmt.Errorf("load %s: %w", library, err)
		}
		purego.RegisterFunc(f, sym)
	}
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		return fmt.Errorf("load libc: %w", err)
	}
	purego.RegisterLibFunc(&libcSigaction, libc, "sigaction")
	return nil
}

func goString(p ptr) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// sigaction is large enough for glibc's struct sigaction on amd64 and arm64.
type sigaction [152]byte

// withoutSignals runs f and puts Go's signal handlers back: the library installs
// its own, with which a nil dereference in Go hangs the process.
func withoutSignals(f func()) {
	saved := map[syscall.Signal]*sigaction{}
	for sig := syscall.SIGHUP; sig <= syscall.SIGSYS; sig++ {
		if sig == syscall.SIGKILL || sig == syscall.SIGSTOP {
			continue
		}
		old := new(sigaction)
		libcSigaction(int32(sig), nil, ptr(old))
		saved[sig] = old
	}
	chdbSetSignalHandlers(0)
	f()
	for sig, old := range saved {
		libcSigaction(int32(sig), ptr(old), nil)
	}
}

// Conn is a connection to the engine in this process. It runs one statement at a
// time; open several for more.
type Conn struct {
	mu sync.Mutex
	pp ptr // chdb_connection *
}

// Open connects to the data directory, which is created if needed. Options are
// command-line options of clickhouse-local, such as "--max_threads=2".
func Open(dir string, options ...string) (*Conn, error) {
	// With a relative path, inserts that sync the directory fail.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	args := append([]string{"clickhouse", "--path=" + dir}, options...)
	argv := make([]ptr, len(args)+1)
	keep := make([][]byte, len(args))
	for i, a := range args {
		keep[i] = append([]byte(a), 0)
		argv[i] = ptr(&keep[i][0])
	}
	var pp ptr
	withoutSignals(func() { pp = chdbConnect(int32(len(args)), ptr(&argv[0])) })
	runtime.KeepAlive(keep)
	if pp == nil || *(*ptr)(pp) == nil {
		return nil, fmt.Errorf("open %s: refused by the engine", dir)
	}
	return &Conn{pp: pp}, nil
}

// Close ends the connection; the last one of the process releases the directory.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	chdbCloseConn(c.pp)
}

func (c *Conn) handle() ptr { return *(*ptr)(c.pp) }

// take copies a result out of the library and frees it.
func take(r ptr) ([]byte, error) {
	if r == nil {
		return nil, errNoResult
	}
	defer chdbDestroyResult(r)
	if e := chdbResultError(r); e != nil {
		return nil, errors.New(goString(e))
	}
	n := chdbResultLength(r)
	if n == 0 {
		return nil, nil
	}
	out := make([]byte, n)
	copy(out, unsafe.Slice((*byte)(chdbResultBuffer(r)), n))
	return out, nil
}

func (c *Conn) call(f func(conn, query ptr, queryLen uintptr, format ptr, formatLen uintptr) ptr, query, format string) ptr {
	q, fm := append([]byte(query), 0), append([]byte(format), 0)
	r := f(c.handle(), ptr(&q[0]), uintptr(len(query)), ptr(&fm[0]), uintptr(len(format)))
	runtime.KeepAlive(q)
	runtime.KeepAlive(fm)
	return r
}

// Query runs any statement and returns its whole output in the given format.
func (c *Conn) Query(query, format string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return take(c.call(chdbQuery, query, format))
}

// Insert runs an INSERT that has no FORMAT clause, fed with data of the format.
func (c *Conn) Insert(query, format string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.call(chdbStreamInsert, query, format)
	if s == nil {
		return errNoResult
	}
	defer chdbDestroyInsert(s)
	if e := chdbStreamInsertError(s); e != nil {
		return errors.New(goString(e))
	}
	if len(data) > 0 {
		rc := chdbStreamAppend(s, ptr(&data[0]), uintptr(len(data)))
		runtime.KeepAlive(data)
		if rc != 0 {
			return errors.New(goString(chdbStreamInsertError(s)))
		}
	}
	_, err := take(chdbStreamDone(s))
	return err
}

// Stream runs a SELECT (other statements go to Query) and calls f with each chunk
// of output until f returns an error, which is returned.
func (c *Conn) Stream(query, format string, f func([]byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.call(chdbStreamQuery, query, format)
	if s == nil {
		return errNoResult
	}
	defer chdbDestroyResult(s)
	if e := chdbResultError(s); e != nil {
		return errors.New(goString(e))
	}
	for {
		chunk, err := take(chdbStreamFetch(c.handle(), s))
		if err != nil || len(chunk) == 0 {
			return err
		}
		if err := f(chunk); err != nil {
			chdbStreamCancel(c.handle(), s)
			return err
		}
	}
}
