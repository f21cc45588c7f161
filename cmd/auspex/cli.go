package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"auspex/internal/telemetry"
)

// Exit codes (docs/reference/cli.md).
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
	ExitLint    = 3
)

// IO is the process around a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string
	// Hangup returns a channel that gets a value for each SIGHUP from now on; nil
	// where there are no signals. Commands that do not ask for it end at one.
	Hangup func() <-chan struct{}
}

// usageError is a command line that cannot be run as it stands.
type usageError struct{ error }

// Unwrap returns the reason.
func (e usageError) Unwrap() error { return e.error }

// lintError is input that was read and found wanting.
type lintError struct{ error }

// Unwrap returns the findings.
func (e lintError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// command runs one command line and returns its exit code. Data goes to standard output,
// everything else to standard error.
func command(ctx context.Context, args []string, std IO) int {
	root := newRoot(std)
	if err := addRemote(root, args, std); err != nil {
		fmt.Fprintln(std.Err, "auspex:", err)
		return ExitFailure
	}
	root.SetArgs(args)
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	var exit exitError
	if errors.As(err, &exit) {
		return int(exit)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(std.Err, "auspex: %s\n", line)
	}
	var usage usageError
	var lint lintError
	switch {
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(std.Err, "Try: %s --help\n", cmd.CommandPath())
		return ExitUsage
	case errors.As(err, &lint):
		return ExitLint
	}
	return ExitFailure
}

func newRoot(std IO) *cobra.Command {
	version, goVersion := telemetry.Version()
	root := &cobra.Command{
		Use:   "auspex",
		Short: "Telemetry, alerting and predictive maintenance for GPU fleets",
		Long: `Auspex watches a fleet of GPU servers from the switches, the board controllers and the GPUs,
correlates symptoms into one incident with one cause, predicts which part fails next, and repairs the machine.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version + " " + goVersion,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(commands(std)...)
	return root
}

// noArgs refuses arguments and suggests the nearest command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		return usagef("unknown command %q; did you mean %q?", args[0], s[0])
	}
	return usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
}

func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s wants %s, got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s wants %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("%s wants at most %d argument(s), got %d", cmd.CommandPath(), n, len(args))
		}
		return nil
	}
}
