package control

import (
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// rowsOf is all that control has written.
func (b *bench) rowsOf() string {
	b.t.Helper()
	var out []string
	for _, table := range []string{"control_cases", "control_actions", "control_leases", "control_audit"} {
		n, err := sqldb.Rows(b.t.Context(), b.db, func(rows *sql.Rows) (n int, err error) { err = rows.Scan(&n); return n, err }, "SELECT count(*) FROM "+table)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, fmt.Sprint(table, n))
	}
	return strings.Join(out, " ")
}

func planOf(b *bench, policies string) map[string]string {
	b.t.Helper()
	writeFile(b.t, filepath.Join(b.dir, "policy.yaml"), policies)
	before := b.rowsOf()
	plan, err := b.controller().WhatIf(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if after := b.rowsOf(); after != before {
		b.t.Errorf("it was %s, and is %s", before, after)
	}
	out := map[string]string{}
	for _, p := range plan {
		text := []string{p.Policy, p.Mode, p.Why}
		for _, s := range p.Steps {
			text = append(text, s.Kind+" "+s.State)
			if s.State == StepWaits || s.State == StepRefused {
				text = append(text, s.Why)
			}
		}
		out[p.Incident] = strings.Join(slices.DeleteFunc(text, func(s string) bool { return s == "" }), ", ")
	}
	return out
}

func (b *bench) plans(policies string, want map[string]string) {
	b.t.Helper()
	got := planOf(b, policies)
	for id, text := range want {
		if !strings.HasPrefix(got[id], text) {
			b.t.Errorf("%s: %s\nwant %s", id, got[id], text)
		}
	}
	if len(got) != len(want) {
		b.t.Errorf("%v", slices.Sorted(maps.Keys(got)))
	}
}

func TestAPlanSaysWhatAnotherFileWouldDoAndWhyNotMore(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	for i, of := range []schemas.Incident{
		incident("nobody", "sw-1", "switch.reboot"), incident("unsure", "gpu-r03-01/gpu1", "gpu.fallen_off_bus"),
		incident("first", "gpu-r04-01/gpu1", "gpu.fallen_off_bus"), incident("second", "gpu-r05-01/gpu1", "gpu.fallen_off_bus"),
	} {
		of.Opened = of.Opened.Add(-time.Hour + time.Duration(i)*time.Minute)
		if of.ID == "unsure" {
			of.RootCause.Confidence = .4
		}
		b.keep(of)
	}
	b.plans(policyText, map[string]string{
		"nobody": "no policy is for switch.reboot", "unsure": "gpu, the cause is 40 % sure, and policy gpu asks for 50 %",
		"first": "gpu, enforce, drain goes, power_cycle goes, uncordon goes", "second": "gpu, enforce, drain goes, power_cycle goes, uncordon goes",
	})
	one := strings.Replace(policyText, "fleet: 2", "fleet: 1", 1)
	if one == policyText {
		t.Fatal("the text of the policies has other budgets")
	}
	b.plans(one, map[string]string{
		"nobody": "no policy is for switch.reboot", "unsure": "gpu, the cause is 40 % sure",
		"first": "gpu, enforce, drain goes, power_cycle goes", "second": "gpu, enforce, drain waits, fleet_budget: ",
	})
	b.plans(strings.ReplaceAll(policyText, "min_confidence: 0.5", "min_confidence: 0.95"), map[string]string{
		"nobody": "no policy is for switch.reboot", "unsure": "gpu, the cause is 40 % sure", "first": "gpu, the cause is 90 % sure, and policy gpu asks for 95 %",
		"second": "gpu, the cause is 90 % sure, and policy gpu asks for 95 %",
	})
	b.plans(strings.Replace(policyText, "settle: 0s", "settle: 2h", 1), map[string]string{
		"nobody": "no policy", "unsure": "gpu, the cause", "first": "gpu, policy gpu waits until the cause has stood for 2h0m0s", "second": "gpu, policy gpu waits",
	})
}
