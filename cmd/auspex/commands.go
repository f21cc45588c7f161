package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"auspex/bench"
	"auspex/correlator/learn"
	"auspex/correlator/replay"
	"auspex/correlator/solver"
	"auspex/internal/cmdb"
	"auspex/internal/config"
	"auspex/internal/datafile"
	"auspex/internal/usage"
	"auspex/predictor/backtest"
	"auspex/schemas/faults/propagation"
)

func commands(std IO) []*cobra.Command {
	return []*cobra.Command{
		runCommand(std), configCommand(std), checkCommand(), decodeCommand(), replayCommand(), learnCommand(std), backtestCommand(std),
		simulateCommand(), generateCommand(), cmdbCommand(std), tokenCommand(std), joinCommand(std), metadataTokenCommand(std), enrolCommand(std), maintenanceCommand(std), benchCommand(), benchPeerCommand(),
		healthcheckCommand(), engineCommand(),
	}
}

// configFlags are the flags of every command that reads the configuration.
type configFlags struct {
	files, set                 []string
	data, listen, mode, script string
	roles                      []string
	demo                       bool
	seed                       uint64
	agents                     bool
	spare, miscabled           int
	stdin                      []byte // kept for a reload, once it was read
}

func (f *configFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.files, "config", "c", nil, "configuration `file` (YAML); repeat it to merge files, later ones win")
	c.Flags().StringArrayVar(&f.set, "set", nil, "set one `key=value`, such as --set bus.type=kafka")
	c.Flags().StringVar(&f.data, "data", "", "`folder` for all state (default ./.auspex)")
}

func (f *configFlags) load(std IO) (Config, error) {
	datafile.Umask() // whoever reads the configuration writes our files, and none of the user's
	set := slices.Clone(f.set)
	for _, kv := range [][2]string{{"data", f.data}, {"api.listen", f.listen}, {"control.mode", f.mode}} {
		if kv[1] != "" {
			set = append(set, kv[0]+"="+kv[1])
		}
	}
	if len(f.roles) > 0 {
		set = append(set, "roles=["+strings.Join(f.roles, ",")+"]")
	}
	c := DefaultConfig()
	if f.demo {
		if err := DemoConfig(&c, f.data); err != nil {
			return c, err
		}
	}
	if f.stdin == nil && slices.Contains(f.files, "-") {
		var err error
		if f.stdin, err = io.ReadAll(std.In); err != nil {
			return c, fmt.Errorf("standard input: %w", err)
		}
	}
	return c, config.Load(config.Source{Files: f.files, Environ: std.Environ, Set: set, Stdin: bytes.NewReader(f.stdin)}, &c)
}

func runCommand(std IO) *cobra.Command {
	f := &configFlags{}
	c := &cobra.Command{
		Use:   "run",
		Short: "Run all roles, or some of them, in this process",
		Long: `Run all roles, or some of them, in this process. SIGHUP or POST /-/reload reads the configuration and the files that it
names again, and applies what can change while the process runs.`,
		Example: `  auspex run --demo                               # the whole system on a simulated fleet
  auspex run --config auspex.yaml                 # your fleet, every role in one process
  auspex run --config auspex.yaml --role collect  # one role, against Kafka, ClickHouse and PostgreSQL`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			o := RunOptions{
				Demo: f.demo, Script: f.script, Seed: f.seed, Agents: f.agents, Spare: f.spare, Miscabled: f.miscabled, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
				Load: func() (Config, error) { return f.load(std) },
			}
			if std.Hangup != nil {
				o.Reload = std.Hangup()
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.demo, "demo", false, "start a simulated fleet and play a script of faults")
	c.Flags().StringVar(&f.script, "script", "", "script of faults for the demo (`file`; default: built-in)")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the simulated fleet")
	c.Flags().BoolVar(&f.agents, "agents-alone", false, "in the demo, "+agentsAloneHelp)
	c.Flags().IntVar(&f.spare, "spare", 0, "in the demo, "+spareHelp)
	c.Flags().IntVar(&f.miscabled, "miscabled", 0, "in the demo, "+miscabledHelp)
	c.Flags().StringVar(&f.mode, "mode", "", "mode of control: observe, dry-run, approve or enforce")
	c.Flags().StringVar(&f.listen, "listen", "", "`address` of the API and the web UI (default 127.0.0.1:8080)")
	c.Flags().StringSliceVar(&f.roles, "role", nil, "roles of this process: "+strings.Join(Roles(), ", "))
	_ = c.RegisterFlagCompletionFunc(
		"mode", cobra.FixedCompletions([]string{"observe", "dry-run", "approve", "enforce"}, cobra.ShellCompDirectiveNoFileComp),
	)
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(Roles(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func configCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "config", Short: "Check, show or write a configuration", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := &configFlags{}
	var connect bool
	check := &cobra.Command{
		Use: "check", Short: "Check a configuration: build every component, start none", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(std)
			if err == nil {
				err = Check(cmd.Context(), cfg, connect, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if err != nil {
				return lintError{err}
			}
			return nil
		},
	}
	show := &cobra.Command{
		Use: "show", Short: "Print the effective configuration, without secrets", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			return ShowConfig(cmd.OutOrStdout(), cfg)
		},
	}
	keys := &cobra.Command{
		Use: "keys", Short: "List every key with its type and default", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return ShowKeys(cmd.OutOrStdout()) },
	}
	initCmd := &cobra.Command{
		Use: "init", Short: "Print a configuration to start from", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(StarterConfig)
			return err
		},
	}
	check.Flags().BoolVar(&connect, "connect", false, "also try every peer and device of the roles once, without writing")
	check.Flags().StringSliceVar(&f.roles, "role", nil, "roles to check (default: those of the configuration)")
	f.add(check)
	f.add(show)
	parent.AddCommand(check, show, initCmd, keys)
	return parent
}

func checkCommand() *cobra.Command {
	parent := &cobra.Command{
		Use: "check", Short: "Check files that other programs read too", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	parent.AddCommand(&cobra.Command{
		Use: "rules FILE...", Short: "Check Prometheus rule files", Args: someArgs("a rule file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := CheckRules(args, cmd.OutOrStdout()); err != nil {
				return lintError{err}
			}
			return nil
		},
	})
	return parent
}

func decodeCommand() *cobra.Command {
	o := DecodeOptions{}
	c := &cobra.Command{
		Use: "decode [FILE]", Short: "Turn raw vendor text into events", Args: maxArgs(1),
		Example: "  dmesg | auspex decode --format dmesg --host gpu-r01-03 -\n  auspex decode --format sel sel.txt.gz",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File = "-"
			if len(args) == 1 {
				o.File = args[0]
			}
			return usageOr(Decode(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.Flags().StringVar(&o.Format, "format", "", strings.Join(DecodeFormats(), ", "))
	c.Flags().StringVar(&o.Host, "host", "", "`name` of the host that the text comes from")
	c.Flags().StringVar(&o.Boot, "boot", "", "boot `time` (RFC 3339), for times since boot")
	c.Flags().StringVar(&o.Topology, "topology", "", "inventory `file`, to resolve parts")
	c.Flags().BoolVar(&o.Strict, "strict", false, "stop at the first bad line")
	c.Flags().Var((*sizeFlag)(&o.MaxSize), "max-size", maxSizeHelp)
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(DecodeFormats(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// replayGC has a replay, which ends soon and has a machine of its own mostly, collect garbage half as often: a tenth
// less work for half as much memory again. GOGC in the environment goes before it.
const replayGC = 200

func replayCommand() *cobra.Command {
	o := replay.Options{}
	parameters := ""
	c := &cobra.Command{
		Use: "replay", Short: "Correlate recorded events, in event time", Args: noArgs,
		Example: "  auspex replay --topology topology.json --events events.jsonl.gz --out incidents.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Topology == "" || o.Events == "" || o.Out == "" {
				return usagef("--topology, --events and --out are required")
			}
			o.Stdin, o.Stdout, o.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			if parameters != "" {
				p, err := readParameters(cmd, parameters)
				if err != nil {
					return usageOr(err)
				}
				o.Adapt = func(m *propagation.Model) *propagation.Model { return learn.Apply(m, p) }
			}
			if os.Getenv("GOGC") == "" {
				defer debug.SetGCPercent(debug.SetGCPercent(replayGC))
			}
			_, err := replay.Run(cmd.Context(), o)
			return usageOr(err)
		},
	}
	c.Flags().StringVar(&o.Topology, "topology", "", "inventory `file`")
	c.Flags().StringVar(&o.Events, "events", "", "events.jsonl `file`; - is standard input")
	c.Flags().StringArrayVar(&o.Faults, "faults", nil, "`folder` with fault records of your own; may be repeated")
	c.Flags().StringVar(&parameters, "parameters", "", "learned parameters: a `file` that learn export wrote")
	c.Flags().StringVar(&o.Metrics, "metrics", "", "OpenMetrics text `file` with timestamps")
	c.Flags().StringVar(&o.Out, "out", "", "incidents.jsonl `file`; - is standard output")
	c.Flags().StringVar(&o.Method, "method", solver.Methods()[0], "how causes are found: "+strings.Join(solver.Methods(), ", "))
	c.Flags().BoolVar(&o.Strict, "strict", false, "stop at the first bad line")
	c.Flags().Var((*sizeFlag)(&o.MaxSize), "max-size", maxSizeHelp)
	return c
}

func learnCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "learn", Short: "Learn from what the site has seen", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	parent.AddCommand(learnEdgesCommand(std), learnProposalsCommand(std), learnParametersCommand(std), learnImportCommand(std))
	parent.AddCommand(learnDecideCommands(std)...)
	parent.AddCommand(learnStoreCommands(std)...)
	return parent
}

func backtestCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "backtest", Short: "Test the predictor on recorded metrics, and the correlator on judged incidents and recorded trouble", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	fo := backtest.ForecastOptions{}
	forecast := &cobra.Command{
		Use: "forecast", Short: "Predict when metrics cross their limits", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fo.Data == "" || fo.Limits == "" || fo.Out == "" {
				return usagef("--data, --limits and --out are required")
			}
			return usageOr(backtest.Forecast(cmd.Context(), fo, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	forecast.Flags().StringVar(&fo.Data, "data", "", "`folder` of wide CSV files, one per device")
	forecast.Flags().StringVar(&fo.Limits, "limits", "", "limits.json `file`")
	forecast.Flags().StringVar(&fo.Out, "out", "", "predictions.jsonl `file`; - is standard output")
	forecast.Flags().DurationVar(&fo.Horizon, "horizon", 168*time.Hour, "how far ahead to forecast")
	forecast.Flags().StringVar(&fo.Reliability, "reliability", "", "CSV `file` for predicted against observed frequencies")
	forecast.Flags().BoolVar(&fo.Strict, "strict", false, "stop at the first bad line")
	forecast.Flags().Var((*sizeFlag)(&fo.MaxSize), "max-size", maxSizeHelp)
	ao := backtest.AnomalyOptions{}
	anomaly := &cobra.Command{
		Use: "anomaly", Short: "Score how unusual each row is, given the rows before it", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ao.Data == "" || ao.Out == "" {
				return usagef("--data and --out are required")
			}
			if cmd.Flags().Changed("warmup") && ao.Warmup < 0 {
				return usagef("--warmup must not be negative")
			}
			return usageOr(backtest.Anomaly(cmd.Context(), ao, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	anomaly.Flags().StringVar(&ao.Data, "data", "", "`folder` of wide CSV files, one per device")
	anomaly.Flags().StringVar(&ao.Out, "out", "", "`folder` for the scores")
	anomaly.Flags().IntVar(&ao.Warmup, "warmup", -1, "number of first rows to learn from without testing them (default 15 %, at most 750)")
	anomaly.Flags().BoolVar(&ao.Strict, "strict", false, "stop at the first bad line")
	anomaly.Flags().Var((*sizeFlag)(&ao.MaxSize), "max-size", maxSizeHelp)
	parent.AddCommand(forecast, anomaly, backtestIncidentsCommand(std), backtestCausesCommand())
	return parent
}

const agentsAloneHelp = "node agents alone tell of what runs on servers: no exporters, and no kernel logs on a shared disk"

const miscabledHelp = "`number` of racks, the first, in which the inventory has the cables of two servers the other way round, as LLDP will show"

const spareHelp = "`number` of servers, the last, that stand there and that the inventory does not have, to be found by a sweep; spare.json lists them"

func simulateCommand() *cobra.Command {
	o := SimulateOptions{}
	c := &cobra.Command{
		Use: "simulate", Short: "Run the simulated fleet: gNMI, Redfish, IPMI, node agents, dcgm-exporter, kernel logs, Slurm and Tinkerbell on loopback", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			datafile.Umask()
			return Simulate(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&o.Dir, "dir", ".auspex/sim", "`folder` for topology, secrets, kernel logs and ledger")
	c.Flags().StringVar(&o.Script, "script", "", "script of faults (`file`; default: that of the demo; none: no faults)")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the fleet and of random targets")
	c.Flags().BoolVar(&o.Agents, "agents-alone", false, agentsAloneHelp)
	c.Flags().StringVar(&o.Syslog, "syslog", "", "HOST:PORT that the servers send their kernel logs to, over UDP; nobody reads the files then")
	c.Flags().IntVar(&o.Spare, "spare", 0, spareHelp)
	c.Flags().IntVar(&o.Miscabled, "miscabled", 0, miscabledHelp)
	c.Flags().StringVar(&o.Dial, "agents-dial", "", "`file` with a section dial, as in the configuration of a node agent: the agents listen nowhere, and dial")
	c.Flags().IntVar(&o.Racks, "racks", 0, "number of racks (default 8)")
	c.Flags().IntVar(&o.Servers, "servers", 0, "servers per rack (default 8)")
	c.Flags().StringVar(
		&o.Listen, "listen", "127.0.0.1",
		"`address` of all devices, such as 10.0.0.5; with a port (10.0.0.5:20000) they use it and the ports after it, else free ports",
	)
	return c
}

func cmdbCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "cmdb", Short: "Import, export or restore the inventory", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	f := &configFlags{}
	var o ImportOptions
	var force bool
	var removed, skipped share
	importing := func(c *cobra.Command, do func(cmd *cobra.Command, cfg Config, args []string) error) *cobra.Command {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			o.Source = cmp.Or(o.Source, cfg.Inventory.Source)
			o.Bounds, o.Actor = cfg.Inventory.Bounds, shellUser()
			if cmd.Flags().Changed("max-removed") {
				o.Bounds.MaxRemoved, o.Bounds.RemovedWithin, o.Told = float64(removed), 0, true
			}
			if cmd.Flags().Changed("max-skipped") {
				o.Bounds.MaxSkipped = float64(skipped)
			}
			if force {
				o.Bounds, o.Told = cmdb.NoBounds(), true
			}
			return do(cmd, cfg, args)
		}
		c.Flags().BoolVar(
			&o.DryRun, "dry-run", false,
			"print the names of what would be added, changed and removed, change nothing; exit 1 if the import would be refused",
		)
		c.Flags().StringVar(
			&o.Source, "source", "", "source of the records (default: inventory.source); an import removes only records of its own source",
		)
		return c
	}
	imp := importing(&cobra.Command{
		Use: "import FILE", Short: "Import a topology.json as the records of its source", Args: exactArgs(1, "a file"),
		Long: `Import a topology.json as the records of its source. Earlier records of the source that the file lacks are removed, unless
another source has them too or a record of another source depends on them. An import is refused if it would remove more than a share of
the records of its source, together with what the imports of the last days removed (inventory.removed_within), or if it must skip more
than a share of its own. --force and --max-removed are a person's word: what goes then does not count against the next imports.`,
		Example: "  auspex cmdb import --dry-run topology.json\n  auspex cmdb import --source netbox --max-removed 25% netbox.json.gz",
	}, func(cmd *cobra.Command, cfg Config, args []string) error {
		return ImportInventory(cmd.Context(), cfg, args[0], o, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	imp.Flags().BoolVar(&o.Strict, "strict", false, "refuse a file with any bad record")
	imp.Flags().BoolVar(&force, "force", false, "import no matter how much is removed or skipped")
	imp.Flags().Var(
		&removed, "max-removed", "`share` of the source's records that may be removed, such as 10% or 0.1 (default: inventory.max_removed)",
	)
	imp.Flags().Var(&skipped, "max-skipped", "`share` of the records that may be skipped (default: inventory.max_skipped)")
	restore := importing(&cobra.Command{
		Use: "restore [VERSION]", Short: "Import an earlier version again; without a number, the previous one", Args: maxArgs(1),
		Long: `Import an earlier version again, as the latest of its source; without a number, the previous version of the source.
A process whose configuration names an inventory file imports that file when it starts: correct the file too.`,
	}, func(cmd *cobra.Command, cfg Config, args []string) error {
		var version int64
		if len(args) == 1 {
			var err error
			if version, err = strconv.ParseInt(args[0], 10, 64); err != nil || version < 1 {
				return usagef("version %q: want a number from `auspex cmdb versions`", args[0])
			}
		}
		o.Bounds, o.Told = cmdb.NoBounds(), true // a person has named it
		return RestoreInventory(cmd.Context(), cfg, version, o, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	reading := func(use, short string, do func(context.Context, Config, io.Writer) error) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := f.load(std)
				if err != nil {
					return usageError{err}
				}
				return do(cmd.Context(), cfg, cmd.OutOrStdout())
			},
		}
	}
	exp := reading("export", "Print the inventory as topology.json", ExportInventory)
	versions := reading("versions", "List the imports that can be restored", ListInventoryVersions)
	for _, c := range []*cobra.Command{imp, restore, exp, versions} {
		f.add(c)
		parent.AddCommand(c)
	}
	return parent
}

// share is a flag that takes a part of a whole: 0.1 or 10%.
type share float64

// String implements pflag.Value.
func (s *share) String() string { return strconv.FormatFloat(float64(*s), 'g', -1, 64) }

// Type implements pflag.Value.
func (s *share) Type() string { return "share" }

// Set implements pflag.Value.
func (s *share) Set(text string) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return errors.New("want a share from 0 to 1, such as 10% or 0.1")
	}
	*s = share(v)
	return nil
}

func benchCommand() *cobra.Command {
	var set []string
	o := bench.Options{Build: func(scenario []string, errw io.Writer) (*bench.Product, error) {
		return benchProduct(slices.Concat(scenario, set), errw)
	}}
	c := &cobra.Command{
		Use: "bench [SCENARIO...]", Short: "Run benchmarks and print one JSON object per scenario",
		Long: "Run benchmarks and print one JSON object per scenario. Scenarios: " + strings.Join(bench.Scenarios(), ", ") +
			"; api is all of the API.",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Set = set
			return usageOr(bench.Run(cmd.Context(), o, args, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
		ValidArgs: slices.Concat(bench.Scenarios(), bench.Groups()),
	}
	c.Flags().IntVar(&o.N, "n", 0, "size of the scenario (default: its own)")
	c.Flags().StringArrayVar(&set, "set", nil, "key=value: a setting over those of the scenario, such as bus.type=kafka (repeatable)")
	c.AddCommand(benchStormsCommand())
	c.Flags().IntVar(&o.Servers, "servers", 0, "size of the fleet of correlate (default 512)")
	return c
}

// benchPeerCommand simulates a device for a benchmark, in a process of its own.
func benchPeerCommand() *cobra.Command {
	return &cobra.Command{
		Use: bench.PeerCommand + " PEER OPTIONS", Short: "Simulate a device for a benchmark", Hidden: true,
		Args: exactArgs(2, "a peer and its options"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.RunPeer(cmd.Context(), args[0], args[1], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func healthcheckCommand() *cobra.Command {
	var url, tokenFile string
	c := &cobra.Command{
		Use: "healthcheck", Short: "Exit 0 if a running Auspex is ready", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/-/ready", nil)
			if err != nil {
				return usageError{err}
			}
			if tokenFile != "" {
				b, err := os.ReadFile(tokenFile)
				if err != nil {
					return fmt.Errorf("healthcheck: %w", err)
				}
				req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(b)))
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return fmt.Errorf("healthcheck: %w", err)
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("healthcheck: %s", resp.Status)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return nil
		},
	}
	c.Flags().StringVar(&url, "url", "http://127.0.0.1:8080", "`address` of the running Auspex")
	c.Flags().StringVar(&tokenFile, "token-file", "", "`file` with a token, if health needs one (api.health)")
	return c
}

// engineCommand is what `auspex run` starts as a child, and fetches once.
func engineCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "engine", Short: "The embedded ClickHouse engine", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "fetch" {
				return FetchEngine(cmd.Context(), cmd.ErrOrStderr())
			}
			if code := EngineMain(args); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
	return c
}

// exitError ends the process with a code; the error is printed already.
type exitError int

// Error implements error.
func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// usageOr makes a usage error of one that the application marks as such.
func usageOr(err error) error {
	if errors.Is(err, usage.Err) {
		return usageError{err}
	}
	return err
}
