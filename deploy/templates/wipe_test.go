package templates_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"auspex/deploy/templates"
	"auspex/internal/provision"
	"auspex/internal/wipe"
	"auspex/schemas"
)

// tool stands for nvme, hdparm and blkdiscard, whose drives are files of a folder: it writes down how it was called, and does what
// they do. A file NAME.TOOL beside that of a drive has it say no, as a frozen drive does. Discarding leaves what was there.
const tool = `#!/bin/sh
PATH=/usr/bin:/bin
me=${0##*/} zero= at=
for arg; do
  case $arg in /dev/*) at=${arg#/dev/} ;; -z) zero=z ;; esac
done
echo "$me $*" >>"$LOG"
[ ! -e "$DRIVES/$at.$me$zero" ] || { echo "$me: $at: Operation not permitted" >&2; exit 5; }
case $me$zero in
  nvme) set -- "$DRIVES/$at"n? ;;
  hdparm|blkdiscardz) set -- "$DRIVES/$at" ;;
  *) [ -e "$DRIVES/$at" ] || exit 1; exit 0 ;;
esac
for drive; do
  [ -e "$drive" ] || exit 1
  size=$(stat -c %s "$drive")
  : >"$drive"
  truncate -s "$size" "$drive"
done
`

const driveSize = 300 * wipe.BlockSize

// erases runs the shell script of the template of wipes over drives that are files, and returns how tools were called, in order of
// their words, what it printed, and what the proof finds of all drives that are there.
func erases(t *testing.T, shell, method string, told, there []string, no ...string) (calls []string, said string, found []schemas.WipeDrive, proven bool) {
	t.Helper()
	shipped, err := templates.All()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(shipped, func(s templates.Shipped) bool { return s.Name == "wipe" })
	r := schemas.HardwareRecord{ID: "1", Name: "a", Interfaces: []schemas.HardwareInterface{{Boot: true, DHCP: schemas.HardwareDHCP{MAC: "02:00:00:00:00:0a", Arch: schemas.ArchX86}}}}
	for i, d := range told {
		r.Disks = append(r.Disks, schemas.HardwareDisk{Device: "/dev/" + d, Boot: i == 0})
	}
	text, _, _, err := provision.Render(t.Context(), &shipped[at].TemplateBody, values{"metadata_url": "http://m", "erase_image": "i/e:1", "proof_image": "i/p:1", "method": method}, &r, nil)
	if err != nil {
		t.Fatal(err)
	}
	var w struct {
		Tasks []struct {
			Actions []struct {
				Environment map[string]string
				Command     []string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	action := w.Tasks[0].Actions[0]
	dir := t.TempDir()
	drives, bin, log := filepath.Join(dir, "drives"), filepath.Join(dir, "bin"), filepath.Join(dir, "log")
	write := func(name string, content []byte, mode os.FileMode) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, content, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"nvme", "hdparm", "blkdiscard"} {
		write(filepath.Join(bin, name), []byte(tool), 0o700)
	}
	for _, d := range there {
		write(filepath.Join(drives, d), bytes.Repeat([]byte("data of whoever had it "), driveSize/23+1)[:driveSize], 0o600)
	}
	for _, d := range no {
		write(filepath.Join(drives, d), nil, 0o600)
	}
	write(log, nil, 0o600)
	cmd := exec.CommandContext(t.Context(), shell, action.Command[1:]...) //nolint:gosec // the script that is tried
	cmd.Env = []string{"PATH=" + bin, "DRIVES=" + drives, "LOG=" + log, "DISKS=" + action.Environment["DISKS"]}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", shell, err, out)
	}
	report := &wipe.Report{}
	for _, d := range there {
		f, err := os.Open(filepath.Join(drives, d))
		if err != nil {
			t.Fatal(err)
		}
		report.Drives = append(report.Drives, wipe.Drive{Device: "/dev/" + d, Size: driveSize, Blocks: wipe.Sample(f, driveSize, wipe.Usual)})
		_ = f.Close()
	}
	if found, proven, err = wipe.Judge(report, r.Disks); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	calls = strings.FieldsFunc(string(lines), func(r rune) bool { return r == '\n' })
	slices.Sort(calls)
	return calls, string(out), found, proven
}

// The script of the template of wipes is run: what it asks of which tool, and what is found of the drives after it.
func TestWhatTheTemplateOfWipesErases(t *testing.T) {
	overwritten := func(d string) []string { return []string{"blkdiscard -f -z /dev/" + d, "blkdiscard -f /dev/" + d} }
	for name, tc := range map[string]struct {
		method      string
		told, there []string // there is told where it is nil
		no          []string
		calls       []string
		said        string
		unproven    map[string]string
	}{
		"NVMe":                           {"block-erase", []string{"nvme0n1", "nvme10n1"}, nil, nil, []string{"nvme sanitize /dev/nvme0 --sanact=2", "nvme sanitize /dev/nvme10 --sanact=2"}, "", nil},
		"NVMe, keys alone":               {"crypto-erase", []string{"nvme0n1"}, nil, nil, []string{"nvme sanitize /dev/nvme0 --sanact=4"}, "", nil},
		"NVMe, overwritten once":         {"overwrite", []string{"nvme0n1"}, nil, nil, []string{"nvme sanitize /dev/nvme0 --sanact=3 --owpass=1"}, "", nil},
		"two namespaces of a controller": {"block-erase", []string{"nvme0n1", "nvme0n2", "nvme1n1"}, nil, nil, []string{"nvme sanitize /dev/nvme0 --sanact=2", "nvme sanitize /dev/nvme1 --sanact=2"}, "", nil},
		"two namespaces, and its controller says no": {
			"block-erase",
			[]string{"nvme0n1", "nvme0n2"},
			nil,
			[]string{"nvme0.nvme"},
			slices.Concat(overwritten("nvme0n1"), overwritten("nvme0n2"), []string{"nvme sanitize /dev/nvme0 --sanact=2", "nvme sanitize /dev/nvme0 --sanact=2"}), "nvme: nvme0: Operation not permitted", nil,
		},
		"ATA":              {"block-erase", []string{"sda"}, nil, nil, []string{"hdparm --yes-i-know-what-i-am-doing --sanitize-block-erase /dev/sda"}, "", nil},
		"ATA, keys alone":  {"crypto-erase", []string{"sda"}, nil, nil, []string{"hdparm --yes-i-know-what-i-am-doing --sanitize-crypto-scramble /dev/sda"}, "", nil},
		"ATA, overwritten": {"overwrite", []string{"sda"}, nil, nil, []string{"hdparm --yes-i-know-what-i-am-doing --sanitize-overwrite hex:00000000 /dev/sda"}, "", nil},
		"an ATA drive that is frozen": {
			"block-erase",
			[]string{"sda", "sdb"},
			nil,
			[]string{"sda.hdparm"},
			append(overwritten("sda"), "hdparm --yes-i-know-what-i-am-doing --sanitize-block-erase /dev/sda", "hdparm --yes-i-know-what-i-am-doing --sanitize-block-erase /dev/sdb"), "hdparm: sda:", nil,
		},
		"a drive of another kind":              {"block-erase", []string{"vda"}, nil, nil, overwritten("vda"), "", nil},
		"one that cannot be discarded":         {"block-erase", []string{"vda"}, nil, []string{"vda.blkdiscard"}, overwritten("vda"), "blkdiscard: vda:", nil},
		"one that takes nothing, among others": {"block-erase", []string{"nvme0n1", "vda", "sda"}, nil, []string{"nvme0.nvme", "nvme0n1.blkdiscard", "nvme0n1.blkdiscardz"}, slices.Concat(overwritten("nvme0n1"), overwritten("vda"), []string{"hdparm --yes-i-know-what-i-am-doing --sanitize-block-erase /dev/sda", "nvme sanitize /dev/nvme0 --sanact=2"}), "/dev/nvme0n1 is not erased", map[string]string{"/dev/nvme0n1": "hold data"}},
		"one that is gone":                     {"block-erase", []string{"vdb", "vda"}, []string{"vda"}, nil, append(overwritten("vda"), overwritten("vdb")...), "/dev/vdb is not erased", map[string]string{"/dev/vdb": "was not seen"}},
		"one that the record has not":          {"block-erase", []string{"vda"}, []string{"vda", "vdb"}, nil, overwritten("vda"), "", map[string]string{"/dev/vdb": "hold data"}},
		"none at all":                          {"block-erase", nil, []string{"vda"}, nil, nil, "", map[string]string{"/dev/vda": "hold data"}},
	} {
		for _, shell := range []string{"/bin/sh", "/bin/bash"} {
			t.Run(name+" "+shell, func(t *testing.T) {
				there := tc.there
				if there == nil {
					there = tc.told
				}
				calls, said, found, proven := erases(t, shell, tc.method, tc.told, there, tc.no...)
				want := slices.Sorted(slices.Values(tc.calls))
				if d := cmp.Diff(want, slices.Clone(calls)); d != "" && len(want)+len(calls) > 0 {
					t.Error(d)
				}
				if !strings.Contains(said, tc.said) || tc.said == "" && said != "" {
					t.Errorf("it says %q, want %q", said, tc.said)
				}
				left := maps.Clone(tc.unproven)
				for i := range found {
					d := &found[i]
					if why := tc.unproven[d.Device]; d.Proven != (why == "") || !strings.Contains(d.Detail, why) {
						t.Errorf("%s: proven %t: %s, want %q", d.Device, d.Proven, d.Detail, why)
					}
					delete(left, d.Device)
				}
				if len(left) > 0 || proven != (len(tc.unproven) == 0) {
					t.Error(left, proven)
				}
			})
		}
	}
}
