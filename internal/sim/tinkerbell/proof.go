package tinkerbell

import (
	"context"
	"errors"
	"net/http"
	"time"

	"auspex/internal/sim/fleet"
	"auspex/internal/wipe"
)

// telling is how long the action that looks at disks tries to tell what it found.
const telling = 30 * time.Second

// errHolds is what the action ends with where a disk is not proven to hold nothing.
var errHolds = errors.New("exit status 1")

// prove does what `auspex-agent wipe-proof` does, on the disks of a server, and tells whom it is told to tell. Its answer comes
// later: the simulator goes on meanwhile.
func (s *Service) prove(at fleet.Netbooted, env map[string]string) <-chan error {
	out := make(chan error, 1)
	r := &wipe.Report{Began: time.Now().UTC()}
	disks, err := s.fleet.Disks(at)
	if err != nil {
		out <- err
		return out
	}
	go func() {
		for _, d := range disks {
			r.Drives = append(r.Drives, wipe.Drive{
				Device: d.Device, Serial: d.Serial, Model: d.Model, Size: fleet.SizeOfDisk, NVMe: d.NVMe, ATA: d.ATA,
				Blocks: wipe.Sample(d.Content, fleet.SizeOfDisk, wipe.Usual),
			})
		}
		r.Ended = time.Now().UTC()
		ctx, cancel := context.WithTimeout(context.Background(), telling)
		defer cancel()
		a, err := wipe.Send(ctx, http.DefaultClient, env["METADATA_URL"], env["WIPE_TOKEN"], r)
		if err == nil && !a.Proven {
			err = errHolds
		}
		out <- err
	}()
	return out
}
