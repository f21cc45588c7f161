package docs

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// CLIPage is docs/reference/cli.md. The commands of the group remote that hold others are a table each.
func CLIPage(root *cobra.Command, remote string) []byte {
	var b bytes.Buffer
	b.WriteString("# Command line\n\nGenerated from the code; do not edit. Data goes to standard output, logs and progress to standard error.\n" +
		"Exit status: 0 success, 1 failure, 2 wrong usage, 3 input that was read and found wanting (`config check`, `check rules`).\n")
	root.InitDefaultHelpCmd()
	writeCommand(&b, root, remote)
	return b.Bytes()
}

func writeCommand(b *bytes.Buffer, c *cobra.Command, remote string) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	if c.GroupID == remote && c.HasSubCommands() {
		fmt.Fprintf(b, "\n## %s\n\n| command | what |\n|---|---|\n", c.CommandPath())
		for _, sub := range c.Commands() {
			fmt.Fprintf(b, "| `%s %s` | %s |\n", c.CommandPath(), sub.Use, cell(sub.Short))
		}
		return
	}
	c.InitDefaultHelpFlag()
	c.Flags().Lookup("help").Hidden = true
	if c.HasParent() {
		what := c.Short + "."
		if c.Long != "" {
			what = c.Long
		}
		fmt.Fprintf(b, "\n## %s\n\n%s\n", c.CommandPath(), what)
		// A command that only groups others has nothing to show of its own.
		own := !c.HasSubCommands() || len(c.ValidArgs) > 0
		if c.Runnable() && own {
			fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.TrimRight(unindent(c.Example), "\n"))
		}
		if own {
			if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
				fmt.Fprintf(b, "\n```\n%s\n```\n", strings.TrimRight(flags, "\n"))
			}
		}
	} else {
		fmt.Fprintf(b, "\n%s\n\n`auspex completion bash|zsh|fish|powershell` prints a completion script.\n", c.Long)
	}
	for _, sub := range c.Commands() {
		writeCommand(b, sub, remote)
	}
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}
