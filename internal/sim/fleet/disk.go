package fleet

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"auspex/internal/sim/kmsg"
	"auspex/schemas"
)

// disk is what is wrong with a disk; what it counts follows from since when.
type disk struct {
	serial string
	worn   time.Time     // since when its cells fail; zero is not
	spent  time.Duration // until its spare is below the threshold
	gone   bool          // not in its slot

	wipe                      WipeFault
	blank                     bool // it holds nothing
	sanitized, broken, erased bool // its last sanitize operation is done, or has failed; nothing was written since
}

type diskKind struct{ name, block, part, model, firmware, pci string }

// The disks of a server, by number: one of each kind.
var diskKinds = [diskCount]diskKind{
	{"nvme0", "nvme0n1", "nvme0n1p2", "AX-N5 3840 GB", "AX10", "0000:3b:00.0"},
	{"sda", "sda", "sda2", "AX-S6 960 GB", "AX07", ""},
}

// SpareThreshold is the spare below which a disk warns.
const SpareThreshold = .1

// badEvery is how often a worn disk cannot read something.
const badEvery = 15 * time.Second

// MachineDisk is a disk as its server sees it.
type MachineDisk struct {
	Name, Model, Firmware, Serial string
	PCI                           string // of an NVMe disk; empty is a SATA disk
	Gone                          bool
	Spare, Wear                   float64 // shares of all spare, and of its life
	MediaErrors                   uint64
	Warns                         bool // it says of itself that it will fail
}

func (s *server) newDisks(site string) {
	for i := range s.disks {
		s.disks[i].serial = "AXD" + strings.ToUpper(digest(site, s.name, "disk", diskKinds[i].name)[:9])
	}
}

// machine reads a disk at a time.
func (d *disk) machine(i int, now time.Time) MachineDisk {
	k := &diskKinds[i]
	m := MachineDisk{
		Name: k.name, Model: k.model, Firmware: k.firmware, Serial: d.serial, PCI: k.pci, Gone: d.gone,
		Spare: 1, Wear: .03 + .01*float64(d.serial[3]%8),
	}
	if d.worn.IsZero() {
		return m
	}
	age := now.Sub(d.worn)
	m.MediaErrors = 1 + uint64(age/badEvery)
	m.Spare = max(.02, 1-(1-SpareThreshold)*age.Seconds()/max(1, d.spent.Seconds()))
	m.Warns = m.Spare < SpareThreshold
	return m
}

// disk finds one by its id.
func (f *Fleet) disk(id string) (*server, int, error) {
	s, i, ok := f.part(id, "disk", 0, diskCount)
	if !ok {
		return nil, 0, fmt.Errorf("disk %q: %w", id, ErrUnknown)
	}
	return s, i, nil
}

// WearDisk lets the cells of a disk fail: what it cannot read the kernel tells at once, and it says of
// itself that it will fail when its spare is below the threshold, after the given time. Zero is a disk
// that is well again.
func (f *Fleet) WearDisk(id string, crossing time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, err := f.disk(id)
	if err != nil {
		return err
	}
	d := &s.disks[i]
	d.worn, d.spent = time.Time{}, crossing
	if crossing > 0 {
		d.worn = f.now
		f.misread(s, i, d.worn)
	}
	return nil
}

// misread prints what the kernel says when a disk cannot read something, again and again while it is worn.
func (f *Fleet) misread(s *server, i int, worn time.Time) {
	d, k := &s.disks[i], &diskKinds[i]
	if !d.worn.Equal(worn) {
		return
	}
	if s.up() && !d.gone {
		sector := f.rng.IntN(1 << 30)
		f.event(s, kmsg.Critical, schemas.EventHostFSError, "io", fmt.Sprintf("disk%d", i),
			fmt.Sprintf("critical medium error, dev %s, sector %d op 0x0:(READ) flags 0x80700 phys_seg 4 prio class 2", k.block, sector))
		f.event(s, kmsg.Err, schemas.EventHostFSError, "io", fmt.Sprintf("disk%d", i),
			fmt.Sprintf("Buffer I/O error on dev %s, logical block %d, async page read", k.part, sector/8))
	}
	f.after(badEvery, func() { f.misread(s, i, worn) })
}

// SetDisk takes a disk out of its slot, or puts it back.
func (f *Fleet) SetDisk(id string, gone bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, err := f.disk(id)
	if err == nil {
		s.disks[i].gone = gone
	}
	return err
}

// FabricLog is the log of a server's fabric manager.
func (f *Fleet) FabricLog(name string) string {
	if s := f.byName[name]; s != nil {
		return s.fabricPath()
	}
	return ""
}

func (s *server) fabricPath() string {
	return strings.TrimSuffix(s.klog.Path(), ".kmsg") + ".fabricmanager.log"
}

// fabric writes a line to the log of a server's fabric manager, in the zone of this machine.
func (f *Fleet) fabric(s *server, level, text string) {
	_, err := s.fabricLog.Write(fmt.Appendf(nil, "[%s] [%s] [tid 841] %s\n", f.now.Local().Format("Jan 02 2006 15:04:05"), level, text))
	f.fail(errors.Join(err, s.fabricLog.Rest()))
}

// Flush writes the lines of hosts that a full disk has kept out, and returns how many bytes of them
// wait on and how many lines are lost.
func (f *Fleet) Flush() (waiting int, lost uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		n, gone, err := s.klog.Flush()
		f.fail(errors.Join(err, s.fabricLog.Flush(), s.fabricLog.Rest()))
		m, more := s.fabricLog.Waiting()
		waiting, lost = waiting+n+m, lost+gone+more
	}
	return waiting, lost
}

// SetFabricManager lets the fabric manager of a server die, which ends the jobs on its GPUs as its
// configuration has it (ABORT_CUDA_JOBS_ON_FM_EXIT), or starts it again.
func (f *Fleet) SetFabricManager(name string, failed bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err != nil || s.noFabric == failed {
		return err
	}
	if !failed {
		f.startFabric(s)
		return nil
	}
	s.noFabric = true
	f.fabric(s, "ERROR", "failed to get NVSwitch device state: an internal error has occurred")
	f.fabric(s, "ERROR", "aborting fabric manager due to a fatal error")
	f.later(s, time.Second, func() {
		var ended []int
		for i := range s.gpus {
			if g := &s.gpus[i]; g.load.PID != 0 && !g.lost {
				f.xid(s, g, 45, kmsg.Process{PID: g.load.PID, Name: g.load.Name}, fmt.Sprintf("Ch %08x", f.rng.IntN(32)))
				ended = append(ended, i)
			}
		}
		for _, i := range ended {
			f.change(Change{Kind: GPULost, Server: s.name, GPU: i})
		}
	})
	return nil
}

// fabricLines prints how a fabric manager starts.
func (f *Fleet) fabricLines(s *server) {
	f.fabric(s, "INFO", "Fabric Manager version 570.124.06 is running with the following configuration options")
	f.fabric(s, "INFO", "Successfully configured all the available GPUs and NVSwitches to route NVLink traffic.")
}

// startFabric starts the fabric manager, which registers the GPUs that wait.
func (f *Fleet) startFabric(s *server) {
	s.noFabric = false
	for i := range s.gpus {
		s.gpus[i].apart = false
	}
	f.fabricLines(s)
}
