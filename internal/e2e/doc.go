// Package e2e holds the tests of the whole product: they start the built binary,
// let the simulated fleet or a real peer (Alertmanager, ipmi_sim, Slurm, promtool)
// speak to it, and look at what comes out. They run with AUSPEX_E2E=1, where a
// peer that is missing is a failure; test/e2e.sh starts the peers and sets what the
// tests ask for.
package e2e
