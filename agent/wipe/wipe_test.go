package wipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/wipe"
	"auspex/schemas"
)

const size = 8 << 20 // of each drive

// computer is a machine of files: three drives, and what is none.
type computer struct {
	t *testing.T
	machine
	pages    map[string][][]byte // of NVMe, one reading after the other
	got      wipe.Report
	token    string
	url      string
	verdicts []schemas.HardwareDisk
}

func (c *computer) put(path, text string) {
	c.t.Helper()
	path = filepath.Join(c.sys, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

// drive puts a drive of zeros, but for what is at its start.
func (c *computer) drive(name, start string) {
	c.t.Helper()
	path := filepath.Join(c.dev, name)
	if err := errors.Join(os.WriteFile(path, []byte(start), 0o600), os.Truncate(path, size)); err != nil {
		c.t.Fatal(err)
	}
	c.put("block/"+name+"/size", fmt.Sprintln(size/512))
	c.put("block/"+name+"/removable", "0\n")
	c.put("block/"+name+"/device/model", "AX "+name+"  \n")
}

func page(status byte, erased byte) []byte {
	return append([]byte{0, 0x40, status, erased}, make([]byte, 508)...)
}

func newComputer(t *testing.T) *computer {
	c := &computer{t: t, pages: map[string][][]byte{}}
	c.machine = machine{sys: t.TempDir(), dev: t.TempDir(), poll: time.Millisecond}
	c.nvme = func(device string) ([]byte, error) {
		all := c.pages[filepath.Base(device)]
		if len(all) == 0 {
			return nil, errors.New("permission denied")
		}
		if len(all) > 1 {
			c.pages[filepath.Base(device)] = all[1:]
		}
		return all[0], nil
	}
	c.ata = func(string) ([]byte, error) {
		return []byte{0x09, 0x0c, 1, 0, 0x80, 0, 0, 0xff, 0, 0xff, 0, 0, 0x40, 0x50}, nil
	}
	c.drive("nvme0n1", "")
	c.put("block/nvme0n1/device/serial", "N0          \n")
	c.pages["nvme0n1"] = [][]byte{page(2, 0), page(2, 0), page(1, 1)} // it goes on for a while
	c.drive("sda", "")
	c.put("block/sda/device/vendor", "ATA     \n")
	c.put("block/sda/device/vpd_pg80", "\x00\x80\x00\x08 S0     ")
	c.drive("sdb", "") // behind a controller of RAID: it says nothing
	c.put("block/sdb/device/vendor", "RAID    \n")
	for _, none := range []string{"loop0", "sr0", "nvme0c0n1", "sdc", "sdd"} {
		c.put("block/"+none+"/size", "8\n")
	}
	for _, none := range []string{"sr0", "nvme0c0n1", "sdc", "sdd"} {
		c.put("block/"+none+"/device/model", "x\n")
	}
	c.put("block/nvme0c0n1/hidden", "1\n")
	c.put("block/sdc/removable", "1\n")
	c.put("block/sdd/size", "0\n")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.token = r.Header.Get("Authorization"); c.token != "Bearer t0k3n" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		c.got = wipe.Report{}
		if err := json.NewDecoder(r.Body).Decode(&c.got); err != nil {
			t.Error(err)
		}
		drives, proven, err := wipe.Judge(&c.got, c.verdicts)
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(wipe.Answer{Proven: proven, Drives: drives})
	}))
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

// run is what the action ends with, and what it prints.
func (c *computer) run(env map[string]string) (int, string) {
	all := map[string]string{envURL: c.url, envToken: "t0k3n", envBlocks: "300"}
	maps.Copy(all, env)
	var out bytes.Buffer
	code := c.main(c.t.Context(), func(name string) string { return all[name] }, &out, &out)
	if strings.Contains(out.String(), "t0k3n") {
		c.t.Errorf("it prints its token: %s", out.String())
	}
	return code, out.String()
}

// All drives are looked at, and nothing else; a sanitize operation that goes on is waited for.
func TestAllDrivesAreLookedAtAndTold(t *testing.T) {
	c := newComputer(t)
	code, said := c.run(nil)
	want := fmt.Sprintf("%[1]s/nvme0n1 (serial N0): proven: its sanitize operation is done, and nothing was written since\n"+
		"%[1]s/sda (serial S0): proven: its sanitize operation is done, and 302 blocks that were read are blank\n%[1]s/sdb: proven: 302 blocks that were read are blank\n", c.dev)
	if code != 0 || said != want {
		t.Errorf("%d:\n%s\nwant\n%s", code, said, want)
	}
	if d := c.got.Drives; len(d) != 3 || d[0].Size != size || d[0].Model != "AX nvme0n1" || len(d[0].Blocks.Offsets) != 302 || c.got.Ended.Before(c.got.Began) {
		t.Errorf("%+v", d)
	}
}

// A drive that says it is done and holds data is not proven, and the action fails.
func TestADriveThatLiesIsFound(t *testing.T) {
	c := newComputer(t)
	c.drive("nvme0n1", "somebody's data")
	c.pages["nvme0n1"] = [][]byte{page(1, 1)}
	if code, said := c.run(nil); code != 1 || !strings.Contains(said, "nvme0n1 (serial N0): not proven: 1 of 302 blocks that were read hold data, one of them at 0, though it says") {
		t.Errorf("%d: %s", code, said)
	}
}

func TestADriveThatFailsOrDoesNotEndIsFound(t *testing.T) {
	c := newComputer(t)
	c.pages["nvme0n1"] = [][]byte{page(2, 0), page(3, 0)}
	if code, said := c.run(nil); code != 1 || !strings.Contains(said, "not proven: its sanitize operation failed") {
		t.Errorf("%d: %s", code, said)
	}
	c.pages["nvme0n1"] = [][]byte{page(2, 0)}
	if code, said := c.run(map[string]string{envWait: "0"}); code != 1 || !strings.Contains(said, "not proven: its sanitize operation is at 25 %") {
		t.Errorf("%d: %s", code, said)
	}
	// Where it does not tell us, its blocks do, and it is said why.
	c.pages["nvme0n1"] = nil
	if code, said := c.run(nil); code != 0 || !strings.Contains(said, "nvme0n1: permission denied\n") || c.got.Drives[0].NVMe != nil {
		t.Errorf("%d: %s", code, said)
	}
}

func TestADriveThatCannotBeReadIsTold(t *testing.T) {
	c := newComputer(t)
	if err := os.Remove(filepath.Join(c.dev, "sdb")); err != nil {
		t.Fatal(err)
	}
	if code, said := c.run(nil); code != 1 || !strings.Contains(said, "sdb: no such file or directory\n") || !strings.Contains(said, "sdb: not proven: 0 of its blocks were read, of 256") {
		t.Errorf("%d: %s", code, said)
	}
	c.verdicts = []schemas.HardwareDisk{{Resource: "s/disk9", Serial: "S9"}}
	if code, said := c.run(nil); code != 1 || !strings.Contains(said, "s/disk9 (serial S9): not proven: the inventory has it, and it was not seen") {
		t.Errorf("%d: %s", code, said)
	}
}

func TestWhatItIsGivenIsChecked(t *testing.T) {
	c := newComputer(t)
	for name, tc := range map[string]struct {
		env  map[string]string
		code int
		said string
	}{
		"no token":          {map[string]string{envToken: ""}, 2, "METADATA_URL and WIPE_TOKEN say whom to tell"},
		"too few blocks":    {map[string]string{envBlocks: "7"}, 2, `BLOCKS is "7"; want a number from 256 to 4000`},
		"no time":           {map[string]string{envWait: "soon"}, 2, `WAIT_SECONDS is "soon"`},
		"no certificate":    {map[string]string{envCA: "x"}, 2, "METADATA_CA has no certificate in PEM"},
		"a token of nobody": {map[string]string{envToken: "other"}, 1, "the metadata service answers 401"},
	} {
		if code, said := c.run(tc.env); code != tc.code || !strings.Contains(said, tc.said) {
			t.Errorf("%s: %d %s", name, code, said)
		}
	}
	c.sys = filepath.Join(c.sys, "none")
	if code, said := c.run(nil); code != 1 || !strings.Contains(said, "list the drives") {
		t.Errorf("%d %s", code, said)
	}
}
