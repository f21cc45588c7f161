package control

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"auspex/control/messages"
	"auspex/schemas"
)

const optionalText = `
budgets: {fleet: 2, rack: 1, per_hour: 9}
breaker: {cases: 5, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    settle: 0s
    max_evidence_age: 1h
    ladder:
      - {kind: drain, attempts: 2, verify: 2s}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 2s, quiet: 100ms}
      - {kind: reinstall, optional: true, needs: [drain], destructive: true, verify: 2s, quiet: 100ms}
      - {kind: validate, optional: true, needs: [reinstall], verify: 2s}
      - {kind: uncordon, needs: [power_cycle], verify: 2s}
      - {kind: quarantine, optional: true, verify: 2s}
`

// installs is what installs a server anew, where a template is pinned to it.
type installStep struct {
	worldStep

	pinned, cures bool
}

func (r installStep) Plan(_ context.Context, s Step) (schemas.Sentence, error) {
	if !r.pinned {
		return schemas.Sentence{}, fmt.Errorf("%w: no template is pinned to %s", ErrCannot, s.Server)
	}
	return messages.New(messages.WouldReturn, messages.Args{"server": s.Server}), nil
}

func (r installStep) Apply(ctx context.Context, s Step) error {
	return cyclesBack{worldStep{r.w}, r.cures}.Apply(ctx, Step{ID: s.ID, Kind: "power_cycle", Server: s.Server, Since: s.Since})
}

func (r installStep) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	s.Kind = "power_cycle"
	return r.worldStep.Verify(ctx, s)
}

// failsValidation is a validation that does not pass.
type failsValidation struct{ worldStep }

func (r failsValidation) Verify(context.Context, Step) (Verdict, schemas.Sentence, error) {
	return Failed, messages.New(messages.NoReset, nil), nil
}

// TestAServerIsInstalledAnewWhereItCanBe climbs a ladder with rungs that are optional, where there is a way to do them and
// where there is none.
func TestAServerIsInstalledAnewWhereItCanBe(t *testing.T) {
	for name, tc := range map[string]struct {
		driver, pinned, cures bool // of the installation
		cycle, invalid        bool
		want                  map[string]string
		says                  string // of reinstall
	}{
		"a power cycle cures it": {
			driver: true, pinned: true, cycle: true,
			want: map[string]string{"drain": "done", "power_cycle": "done", "uncordon": "done"},
		},
		"an installation cures it": {
			driver: true, pinned: true, cures: true,
			want: map[string]string{"drain": "done", "power_cycle": "failed", "reinstall": "done", "validate": "done", "uncordon": "done"},
		},
		"it does not pass its validation": {
			driver: true, pinned: true, cures: true, invalid: true,
			want: map[string]string{"drain": "done", "power_cycle": "failed", "reinstall": "done", "validate": "failed", "quarantine": "done", "ticket": "proposed"},
		},
		"nothing cures it": {
			driver: true, pinned: true,
			want: map[string]string{"drain": "done", "power_cycle": "failed", "reinstall": "failed", "quarantine": "done", "ticket": "proposed"},
		},
		"no template is pinned": {
			driver: true,
			want:   map[string]string{"drain": "done", "power_cycle": "failed", "reinstall": "refused", "quarantine": "done", "ticket": "proposed"},
			says:   "skipped: cannot: no template is pinned to " + server,
		},
		"nothing installs": {
			want: map[string]string{"drain": "done", "power_cycle": "failed", "reinstall": "refused", "quarantine": "done", "ticket": "proposed"},
			says: "skipped: cannot: no driver for reinstall",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			writeFile(t, filepath.Join(b.dir, "policy.yaml"), optionalText)
			c := b.controller()
			c.d.Remediators["power_cycle"] = cyclesBack{worldStep{b.w}, tc.cycle}
			if tc.driver {
				c.d.Remediators["reinstall"] = installStep{worldStep{b.w}, tc.pinned, tc.cures}
			}
			if tc.invalid {
				c.d.Remediators["validate"] = failsValidation{worldStep{b.w}}
			}
			as := b.until(c, func(as []schemas.Action) bool {
				s := states(as)
				return (s["uncordon"] == schemas.ActionDone || s["ticket"] != "") && b.over()
			}, incident("i1", part, "gpu.fallen_off_bus"))
			got := b.stored() // as they are since the case has closed
			for k, want := range tc.want {
				if got[k] != want {
					t.Errorf("%s is %q, want %s: %s", k, got[k], want, kind(as, k).Detail)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if a := kind(as, "reinstall"); tc.says != "" && a.Detail != tc.says {
				t.Errorf("it says %q, want %q", a.Detail, tc.says)
			}
			b.w.mu.Lock()
			defer b.w.mu.Unlock()
			if out := tc.want["ticket"] != ""; b.w.drained[server] != out {
				t.Errorf("out of the pool: %v, want %v", b.w.drained[server], out)
			}
		})
	}
}

// TestACaseKeepsTheLadderThatItWasOpenedWith takes up a case of an earlier version, whose ladder has got more rungs since.
func TestACaseKeepsTheLadderThatItWasOpenedWith(t *testing.T) {
	b := newBench(t, schemas.ModeApprove)
	c := b.controller()
	b.until(c, func(as []schemas.Action) bool { return states(as)["drain"] == schemas.ActionWaiting }, incident("i1", part, "gpu.fallen_off_bus"))
	if _, err := b.db.ExecContext(t.Context(), `UPDATE control_cases SET doc=REPLACE(doc, '"ladder":["drain","power_cycle","uncordon"],', '')`); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), optionalText)
	again := b.controller()
	b.until(again, func([]schemas.Action) bool {
		again.mu.Lock()
		defer again.mu.Unlock()
		return again.open[server] != nil
	})
	k := again.open[server]
	if p, ok := again.policyOf(k); !ok || len(p.Ladder) != 3 || p.Ladder[2].Kind != kindUncordon {
		t.Errorf("%v %v", ok, p.Kinds())
	}
	k.Ladder = []string{"drain", "reset_gpu"}
	if p, ok := again.policyOf(k); ok {
		t.Errorf("a ladder that is gone is %v", p.Kinds())
	}
}
