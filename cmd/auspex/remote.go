package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"auspex/client/cli"
	"auspex/schemas/openapi"
)

// addRemote adds the commands that ask a running Auspex. Reading the document takes a moment, which
// commands that do without it are spared.
func addRemote(root *cobra.Command, args []string, std IO) error {
	own := func(name string) bool {
		return name == "help" || name == "completion" || slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
	}
	if len(args) > 0 && (own(args[0]) && args[0] != "help" && args[0] != "completion" || args[0] == "--version" || args[0] == "-v") {
		return nil
	}
	commands, err := cli.Commands(openapi.Document, std.Environ, std.In, func(name string) bool { return own(name) || own(strings.TrimSuffix(name, "s")) })
	if err != nil {
		return err
	}
	const here = "here"
	root.AddGroup(&cobra.Group{ID: here, Title: "Commands:"}, &cobra.Group{ID: cli.Group, Title: "Commands that ask a running Auspex:"})
	for _, c := range commands {
		switch c.Name() {
		case "audit":
			c.AddCommand(verifyCommand(std))
		case "plan":
			withPolicies(c, std)
		}
	}
	for _, c := range root.Commands() {
		c.GroupID = here
	}
	root.SetHelpCommandGroupID(here)
	root.SetCompletionCommandGroupID(here)
	root.AddCommand(commands...)
	return nil
}
