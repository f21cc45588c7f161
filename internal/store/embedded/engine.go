package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"auspex/internal/store/embedded/chdb"
)

// Exit codes of the child. The parent tries all but exitRefused again.
const (
	exitFailure = 1
	exitUsage   = 2
	exitRefused = 3 // trying again will not help: the library does not load
)

// lockWait is how long a child waits for the one before it to let go of the data.
const lockWait = 3 * time.Second

// Main is the hidden command `auspex engine`: it serves the engine on a Unix
// socket until its standard input ends, which happens when its parent closes it
// or dies. It returns the exit code; what went wrong is one line on standard error.
func Main(args []string) int {
	fs := flag.NewFlagSet("engine", flag.ContinueOnError)
	dir := fs.String("dir", "", "data `directory`")
	socket := fs.String("socket", "", "`path` of the socket to serve")
	library := fs.String("library", "", "`path` of libchdb.so")
	memory := fs.Int64("memory", 0, "limit in `bytes`")
	conns := fs.Int("connections", 0, "statements at a time")
	if err := fs.Parse(args); err != nil || *dir == "" || *socket == "" || *library == "" || *conns < 1 {
		fmt.Fprintln(os.Stderr, "engine: --dir, --socket, --library, --memory and --connections are required; auspex run starts it by itself")
		return exitUsage
	}
	// A Ctrl-C in the terminal goes to the parent, which stops us in its order.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	orphaned := make(chan struct{})
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(orphaned)
	}()
	return serve(*dir, *socket, *library, *memory, *conns, orphaned)
}

func serve(dir, socket, library string, memory int64, conns int, stop <-chan struct{}) int {
	report := func(err error) int {
		fmt.Fprintln(os.Stderr, "engine:", err)
		return exitFailure
	}
	lock, err := lockDir(dir, lockWait, stop)
	if err != nil {
		return report(err)
	}
	defer func() { _ = lock.Close() }()
	if err := chdb.Load(library); err != nil {
		_ = report(err)
		return exitRefused
	}
	pool := make([]*chdb.Conn, conns)
	for i := range pool {
		if pool[i], err = chdb.Open(dir, options(memory)...); err != nil {
			return report(err)
		}
	}
	handler := newServer(pool)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return report(fmt.Errorf("listen: %w", err))
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	select {
	case err := <-served:
		return report(fmt.Errorf("serve: %w", err))
	case <-term:
	case <-stop:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = srv.Shutdown(ctx)
	handler.close(ctx)
	return 0
}

// options bound the engine's memory and keep it from writing about itself.
func options(memory int64) []string {
	cache := max(memory/16, 8<<20)
	return []string{
		"--max_server_memory_usage=" + strconv.FormatInt(memory, 10),
		"--mark_cache_size=" + strconv.FormatInt(cache, 10),
		"--index_mark_cache_size=" + strconv.FormatInt(cache, 10),
		"--uncompressed_cache_size=0",
		"--max_memory_usage=" + strconv.FormatInt(memory*3/4, 10),
		"--max_threads=2",
		"--max_insert_threads=1",
		"--async_insert=0",
	}
}

// lockDir takes the directory's lock, which dies with the process that holds it.
func lockDir(dir string, wait time.Duration, stop <-chan struct{}) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".auspex-lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(wait)
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			_ = f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s is in use by another process", dir)
			}
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-stop:
			_ = f.Close()
			return nil, errors.New("stopped while waiting for the lock")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
