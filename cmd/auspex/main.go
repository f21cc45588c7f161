// Command auspex watches a fleet of GPU servers, folds what it sees into
// incidents with one cause, says what fails next, and repairs. The package wires
// the stages into one process, a file a role: the only place where they meet in
// code. Everything else meets on the bus and in the stores.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// collectAt is how much of what is in use may be garbage before it is collected, in percent (GOGC).
// Most of what is in use here are connections that wait: memory is dearer than the time to look
// through it.
const collectAt = 75

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { // a second signal ends the process at once
		<-ctx.Done()
		stop()
	}()
	ctx, end := context.WithCancel(ctx)
	std := IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Hangup: func() <-chan struct{} { return hangups(end) }}
	os.Exit(command(ctx, os.Args[1:], std))
}

// hangups hands on each SIGHUP, several at once as one. The one that comes because
// the terminal has gone ends the process instead, unless it was told to live on
// (nohup).
func hangups(end func()) <-chan struct{} {
	stays := signal.Ignored(syscall.SIGHUP) || !onTerminal()
	in, out := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(in, syscall.SIGHUP)
	go func() {
		for range in {
			if !stays && !onTerminal() {
				end()
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out
}

// onTerminal reports whether the process belongs to a terminal.
func onTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}
