// Command auspex watches a fleet of GPU servers, folds what it sees into
// incidents with one cause, says what fails next, and repairs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/auspex-dev/auspex/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { // a second signal ends the process at once
		<-ctx.Done()
		stop()
	}()
	os.Exit(cli.Run(ctx, os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}))
}
