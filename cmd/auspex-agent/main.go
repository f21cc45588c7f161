// Command auspex-agent runs on a server, keeps the lines of its kernel's log until they
// are acknowledged, and serves them as a gNMI target (docs/how-to/node-agent.md).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"auspex/agent"
	"auspex/agent/cuda"
	"auspex/agent/dcgm"
	"auspex/agent/wipe"
	"auspex/internal/config"
	"auspex/internal/datafile"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == dcgm.Verb {
		os.Exit(dcgm.Main(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command runs the agent; 1 is a failure and 2 a mistake of usage or configuration.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == cuda.Argument { // a child of the agent, for one validation of one GPU
		return cuda.Child(os.Stdin, stdout)
	}
	if len(args) == 1 && args[0] == wipe.Verb { // an action of a workflow, and no agent
		return wipe.Main(ctx, os.Getenv, stdout, stderr)
	}
	flags := flag.NewFlagSet("auspex-agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "configuration `file` (YAML)")
	check := flags.Bool("check", false, "check the configuration and end")
	listen := flags.String("listen", "", "`address` of the gNMI target, over the one in the file")
	data := flags.String("data", "", "`folder` of the journal, over the one in the file")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if flags.NArg() > 0 {
			fmt.Fprintf(stderr, "auspex-agent: argument %q is not known\nTry: auspex-agent -h\n", flags.Arg(0))
		}
		return 2
	}
	cfg := agent.Default()
	var src config.Source
	if *file != "" {
		src.Files = []string{*file}
	}
	for key, v := range map[string]string{"listen": *listen, "data": *data} {
		if v != "" {
			src.Set = append(src.Set, key+"="+v)
		}
	}
	if err := config.Load(src, cfg); err != nil {
		fmt.Fprintf(stderr, "auspex-agent: %v\n", err)
		return 2
	}
	if *check {
		if err := agent.Check(cfg); err != nil {
			fmt.Fprintf(stderr, "auspex-agent: %v\n", err)
			return 2
		}
		fmt.Fprintln(stdout, "ok")
		return 0
	}
	datafile.Umask()
	log := slog.New(slog.NewTextHandler(stderr, nil))
	a, err := agent.New(cfg, log)
	if err != nil {
		fmt.Fprintf(stderr, "auspex-agent: %v\n", err)
		return 1
	}
	if err := a.Run(ctx, func(addr string) { fmt.Fprintf(stdout, "ready %s\n", addr) }); err != nil {
		fmt.Fprintf(stderr, "auspex-agent: %v\n", err)
		return 1
	}
	return 0
}
