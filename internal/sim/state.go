package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"auspex/internal/sim/fault"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/kube"
	"auspex/internal/sim/slurm"
)

// saveEvery is how much of the counters a kill of the simulator may cost.
// Records and job numbers are saved with the next round of the scheduler.
const saveEvery = 5 * time.Second

// state is what the fleet keeps over a restart of its simulator.
type state struct {
	Clean bool        `json:"clean"` // written when everything had stopped
	Fleet fleet.State `json:"fleet"`
	Slurm slurm.State `json:"slurm"`
	// Tinkerbell is what the Kubernetes API holds.
	Tinkerbell kube.State     `json:"tinkerbell"`
	Faults     []fault.Active `json:"faults"`
}

// remember reads the state of the run before. It returns nil where there was
// none, and where it cannot be read, which is logged; the file is then set aside.
func (s *simulator) remember() (*state, error) {
	var st state
	err := readJSON(s.path(stateFile), &st)
	switch {
	case err == nil:
		return &st, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	}
	s.cfg.Log.Warn("state of the simulator is unreadable, starting afresh", "error", err)
	if err := os.Rename(s.path(stateFile), s.path(stateFile+".bad")); err != nil {
		return nil, fmt.Errorf("set unreadable state aside: %w", err)
	}
	return nil, nil
}

// due says whether there is something worth saving.
func (s *simulator) due(now time.Time) bool {
	return now.Sub(s.saved) >= saveEvery || s.fleet.Records() != s.savedRecords || s.slurm.NextID() != s.savedJob || s.kube.Version() != s.savedKube
}

// save writes the state; clean says that nothing can change any more.
func (s *simulator) save(clean bool) error {
	st := state{Clean: clean, Faults: []fault.Active{}}
	s.savedRecords, s.savedJob, s.saved = s.fleet.Records(), s.slurm.NextID(), time.Now()
	s.savedKube = s.kube.Version()
	st.Fleet, st.Slurm, st.Tinkerbell = s.fleet.State(), s.slurm.State(), s.kube.State()
	if s.in != nil {
		st.Faults = s.in.Active()
	}
	return writeJSON(s.path(stateFile), &st)
}
