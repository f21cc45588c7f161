// Package jobs finds whose a process is: the job of Slurm or the pod of Kubernetes that
// it runs in, by its control group, its environment and the kubelet's word.
package jobs

import (
	"regexp"
	"strconv"
	"strings"
)

// Owner is whose a process is. Slurm's numbers are 0, and the texts empty, where it is
// not Slurm's or Kubernetes'.
type Owner struct {
	Job       int64  // Slurm's job id
	Step      string // of the job: a number, batch, extern or interactive
	Pod       string // the pod's uid, of static pods the hash of their manifest
	Container string // id in the container runtime
}

// Known says whether it is anybody's.
func (o Owner) Known() bool { return o.Job != 0 || o.Pod != "" }

// The parts of a control group's path that name an owner. Slurm's are those of its
// plugins cgroup/v1 (slurm/uid_0/job_1/step_0) and cgroup/v2
// (system.slice/slurmstepd.scope/job_1/step_0, in the name of the node where a machine
// runs several of its daemons). Kubernetes' are those of the drivers cgroupfs
// (kubepods/burstable/pod<uid>/<id>) and systemd
// (kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope),
// which writes _ for the dashes of a uid (kubelet, pkg/kubelet/cm).
var (
	jobPart       = regexp.MustCompile(`^job_(\d+)$`)
	stepPart      = regexp.MustCompile(`^step_(\w+)$`)
	podPart       = regexp.MustCompile(`^(?:kubepods(?:-besteffort|-burstable)?-)?pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
	containerPart = regexp.MustCompile(`^(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// ParseCgroup returns the owner that /proc/<pid>/cgroup tells (cgroups(7)): a line a
// hierarchy, of which the first that names an owner counts.
func ParseCgroup(text string) Owner {
	for line := range strings.Lines(text) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 { // hierarchy, controllers, path
			if o := ofPath(f[2]); o.Known() {
				return o
			}
		}
	}
	return Owner{}
}

// ofPath returns the owner that the path of a control group names.
func ofPath(path string) (o Owner) {
	slurm, kubernetes := false, false
	for part := range strings.SplitSeq(path, "/") {
		slurm = slurm || part == "slurm" || strings.HasPrefix(part, "slurm_") || strings.HasSuffix(part, "slurmstepd.scope")
		kubernetes = kubernetes || strings.HasPrefix(part, "kubepods")
		switch m := ([]string)(nil); {
		case slurm && o.Job == 0:
			if m = jobPart.FindStringSubmatch(part); m != nil {
				o.Job = number(m[1])
			}
		case slurm && o.Step == "":
			if m = stepPart.FindStringSubmatch(part); m != nil {
				o.Step = m[1]
			}
		case kubernetes && o.Pod == "":
			if m = podPart.FindStringSubmatch(part); m != nil {
				o.Pod = strings.ReplaceAll(m[1], "_", "-")
			}
		case kubernetes && o.Container == "":
			if m = containerPart.FindStringSubmatch(part); m != nil {
				o.Container = m[1]
			}
		}
	}
	return o
}

// ParseEnviron returns the owner that /proc/<pid>/environ tells (proc_pid_environ(5)),
// as the process was started: sites where Slurm tracks processes without control groups
// have nothing else. A program can change it; a control group it cannot.
func ParseEnviron(environ []byte) (o Owner) {
	for v := range strings.SplitSeq(string(environ), "\x00") {
		switch name, value, _ := strings.Cut(v, "="); name {
		case "SLURM_JOB_ID":
			o.Job = number(value)
		case "SLURM_STEP_ID":
			if _, err := strconv.ParseUint(value, 10, 32); err == nil {
				o.Step = value
			}
		}
	}
	if o.Job == 0 {
		return Owner{}
	}
	return o
}

// number reads the id of a job, or 0 where no job has such a number.
func number(s string) int64 {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return max(0, id)
}
