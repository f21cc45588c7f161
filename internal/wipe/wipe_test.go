package wipe_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/wipe"
	"auspex/schemas"
)

// page is a log page Sanitize Status as the NVM Express Base Specification 2.0 lays it out: progress, status, Command Dword 10
// of the operation, and the times that operations are estimated to take, of which 14 s is a block erase.
func page(progress, status uint16) []byte {
	b := make([]byte, 512)
	b[0], b[1], b[2], b[3], b[4] = byte(progress), byte(progress>>8), byte(status), byte(status>>8), 2
	copy(b[8:], []byte{0x10, 0x0e, 0, 0, 0x0e, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	return b
}

func TestTheSanitizeStatusOfNVMe(t *testing.T) {
	for name, tc := range map[string]struct {
		page []byte
		want schemas.SanitizeStatus
	}{
		"never, and nothing was ever written": {page(0xffff, 0x0100), schemas.SanitizeStatus{State: schemas.SanitizeNone, Erased: true}},
		"done":                                {page(0xffff, 0x0101), schemas.SanitizeStatus{State: schemas.SanitizeDone, Erased: true}},
		"done, and written since":             {page(0xffff, 0x0001), schemas.SanitizeStatus{State: schemas.SanitizeDone}},
		"an overwrite of three passes":        {page(0xffff, 0x0119), schemas.SanitizeStatus{State: schemas.SanitizeDone, Erased: true}},
		"deallocated, unexpectedly":           {page(0xffff, 0x0104), schemas.SanitizeStatus{State: schemas.SanitizeDone, Erased: true}},
		"running":                             {page(0x8000, 0x0002), schemas.SanitizeStatus{State: schemas.SanitizeRunning, Progress: .5}},
		"failed":                              {page(0xffff, 0x0003), schemas.SanitizeStatus{State: schemas.SanitizeFailed}},
		"a state that is reserved":            {page(0xffff, 0x0007), schemas.SanitizeStatus{State: schemas.SanitizeNone}},
	} {
		tc.want.Raw = hex.EncodeToString(tc.page[:32])
		if got, err := wipe.NVMe(tc.page); err != nil || cmp.Diff(tc.want, got) != "" {
			t.Errorf("%s: %s %v", name, cmp.Diff(tc.want, got), err)
		}
	}
	if _, err := wipe.NVMe(page(0, 0x101)[:31]); !errors.Is(err, wipe.ErrReport) {
		t.Errorf("half a page: %v", err)
	}
}

// descriptor is an ATA Status Return descriptor (SAT-3, table 112): count, LBA(15:0) and status.
func descriptor(count, low uint16, status byte) []byte {
	return []byte{0x09, 0x0c, 1, 0, byte(count >> 8), byte(count), 0, byte(low), 0, byte(low >> 8), 0, 0, 0x40, status}
}

func TestTheSanitizeStatusOfATA(t *testing.T) {
	for name, tc := range map[string]struct {
		d    []byte
		want schemas.SanitizeStatus
	}{
		"done":               {descriptor(0x8000, 0xffff, 0x50), schemas.SanitizeStatus{State: schemas.SanitizeDone}},
		"running":            {descriptor(0x4000, 0x4000, 0x50), schemas.SanitizeStatus{State: schemas.SanitizeRunning, Progress: .25}},
		"running, not first": {descriptor(0xc000, 0x4000, 0x50), schemas.SanitizeStatus{State: schemas.SanitizeRunning, Progress: .25}},
		"none":               {descriptor(0, 0xffff, 0x50), schemas.SanitizeStatus{State: schemas.SanitizeNone}},
		"failed":             {descriptor(0x8000, 1, 0x51), schemas.SanitizeStatus{State: schemas.SanitizeFailed}},
		"an unknown command": {descriptor(0x8000, 0, 0x51), schemas.SanitizeStatus{State: schemas.SanitizeNone}},
	} {
		tc.want.Raw = hex.EncodeToString(tc.d)
		if got, err := wipe.ATA(tc.d); err != nil || cmp.Diff(tc.want, got) != "" {
			t.Errorf("%s: %s %v", name, cmp.Diff(tc.want, got), err)
		}
	}
	for _, bad := range [][]byte{{}, {0x72, 1, 2, 3}, descriptor(0x8000, 0, 0x50)[:13]} {
		if _, err := wipe.ATA(bad); !errors.Is(err, wipe.ErrReport) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

const size = 32 << 20 // of a drive

// drive is a file that stands for a drive: of zeros, but for what is written into it.
func drive(t *testing.T, write map[int64][]byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "drive"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, b := range write {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// The first and the last block are always read, and others at random, each once.
func TestBlocksAreReadBack(t *testing.T) {
	ones := strings.Repeat("\xff", wipe.BlockSize)
	blank := wipe.Sample(drive(t, map[int64][]byte{0: []byte(ones)}), size, 500)
	if len(blank.Offsets) != 502 || blank.Blank != 502 || blank.Offsets[0] != 0 || blank.Offsets[501] != size-wipe.BlockSize {
		t.Errorf("%d blocks, %d of them blank", len(blank.Offsets), blank.Blank)
	}
	if again := wipe.Sample(drive(t, nil), size, 500); cmp.Equal(again.Offsets, blank.Offsets) {
		t.Error("whoever knows which blocks are read needs to wipe no others")
	}
	// One octet at the end of the first block, and in the last one.
	got := wipe.Sample(drive(t, map[int64][]byte{wipe.BlockSize - 1: {1}, size - 7: {1}}), size, 500)
	if d := cmp.Diff([]int64{0, size - wipe.BlockSize}, got.Data); d != "" || got.Blank != 500 {
		t.Errorf("%s%d blank", d, got.Blank)
	}
	// An octet of 64 KiB in each MiB, a sixteenth of all: 500 blocks miss it once in 10^14 times.
	left := map[int64][]byte{}
	for at := int64(0); at < size; at += 1 << 20 {
		for k := int64(0); k < 64<<10; k += wipe.BlockSize {
			left[at+k] = []byte("left")
		}
	}
	if got := wipe.Sample(drive(t, left), size, 500); len(got.Data) < 5 {
		t.Errorf("of data in a sixteenth of a drive %d blocks were found", len(got.Data))
	}
	short := drive(t, nil)
	if err := short.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	if got := wipe.Sample(short, size, 500); len(got.Unread) < 100 || got.Message == "" {
		t.Errorf("%d of half a drive were not read: %q", len(got.Unread), got.Message)
	}
	if got := wipe.Sample(drive(t, nil), 5*wipe.BlockSize+7, 500); len(got.Offsets) != 5 || got.Blank != 5 {
		t.Errorf("all of a small drive: %+v", got)
	}
	if got := wipe.Sample(drive(t, nil), 100, 500); len(got.Offsets) != 0 {
		t.Errorf("%+v", got)
	}
}

func sampled(t *testing.T, n int, write map[int64][]byte) *schemas.WipeBlocks {
	t.Helper()
	return wipe.Sample(drive(t, write), size, n)
}

func TestWhatProvesThatADriveIsBlank(t *testing.T) {
	data := map[int64][]byte{0: []byte("a table of partitions")}
	unread := func() *schemas.WipeBlocks {
		b := sampled(t, 300, nil)
		b.Unread, b.Blank = b.Offsets[:2], b.Blank-2
		return b
	}
	for name, tc := range map[string]struct {
		d      wipe.Drive
		method string
		said   string
	}{
		"sanitized, and nothing written since": {wipe.Drive{NVMe: page(0xffff, 0x101)}, schemas.WipedByNVMe, "its sanitize operation is done, and nothing was written since"},
		"and blocks read back":                 {wipe.Drive{NVMe: page(0xffff, 0x101), Blocks: sampled(t, 300, nil)}, schemas.WipedByNVMe, "nothing was written since"},
		"of which some give errors":            {wipe.Drive{NVMe: page(0xffff, 0x101), Blocks: unread()}, schemas.WipedByNVMe, "nothing was written since"},
		"sanitized before its last user":       {wipe.Drive{NVMe: page(0xffff, 0x001)}, "", "0 of its blocks were read, of 256 that are wanted"},
		"and discarded after that":             {wipe.Drive{NVMe: page(0xffff, 0x001), Blocks: sampled(t, 300, nil)}, schemas.WipedByNVMe, "302 blocks that were read are blank"},
		"which some blocks do not show":        {wipe.Drive{NVMe: page(0xffff, 0x001), Blocks: unread()}, "", "2 of 302 blocks could not be read"},
		"a sanitize operation that failed":     {wipe.Drive{NVMe: page(0xffff, 0x003), Blocks: sampled(t, 300, nil)}, "", "its sanitize operation failed"},
		"one that goes on":                     {wipe.Drive{NVMe: page(0x4000, 0x002), Blocks: sampled(t, 300, nil)}, "", "its sanitize operation is at 25 %"},
		"one that says it is done, and lies":   {wipe.Drive{NVMe: page(0xffff, 0x101), Blocks: sampled(t, 300, data)}, "", "1 of 302 blocks that were read hold data, one of them at 0, though it says that its sanitize operation is done"},
		"an ATA drive":                         {wipe.Drive{ATA: descriptor(0x8000, 0xffff, 0x50), Blocks: sampled(t, 300, nil)}, schemas.WipedByATA, "its sanitize operation is done, and 302 blocks that were read are blank"},
		"an ATA drive, by its word alone":      {wipe.Drive{ATA: descriptor(0x8000, 0xffff, 0x50)}, "", "0 of its blocks were read"},
		"discarded":                            {wipe.Drive{Blocks: sampled(t, 300, nil)}, schemas.WipedByBlocks, "302 blocks that were read are blank"},
		"not discarded":                        {wipe.Drive{Blocks: sampled(t, 300, data)}, "", "1 of 302 blocks that were read hold data, one of them at 0"},
		"with few blocks read":                 {wipe.Drive{Blocks: sampled(t, 100, nil)}, "", "102 of its blocks were read, of 256 that are wanted"},
		"of which nothing is known":            {wipe.Drive{}, "", "0 of its blocks were read"},
		"never sanitized, and new":             {wipe.Drive{NVMe: page(0xffff, 0x100)}, "", "0 of its blocks were read"},
	} {
		tc.d.Device, tc.d.Size = "/dev/nvme0n1", size
		drives, proven, err := wipe.Judge(&wipe.Report{Drives: []wipe.Drive{tc.d}}, nil)
		if err != nil || len(drives) != 1 || proven != (tc.method != "") || drives[0].Proven != proven || drives[0].Method != tc.method || !strings.Contains(drives[0].Detail, tc.said) {
			t.Errorf("%s: %v %v %v", name, proven, drives, err)
		}
	}
}

// All drives of the record have to be there and proven, and all that were seen beside.
func TestAServerIsWipedWhenAllItsDrivesAre(t *testing.T) {
	good := func(device, serial string) wipe.Drive {
		return wipe.Drive{Device: device, Serial: serial, Size: size, NVMe: page(0xffff, 0x101)}
	}
	bad := wipe.Drive{Device: "/dev/sdb", Serial: "U1", Size: size}
	disks := []schemas.HardwareDisk{{Resource: "s/disk0", Device: "/dev/nvme0n1", Serial: "N0"}, {Resource: "s/disk1", Device: "/dev/sda"}}
	for name, tc := range map[string]struct {
		drives []wipe.Drive
		proven bool
		want   string // of those that are not
	}{
		"both":                    {[]wipe.Drive{good("/dev/nvme0n1", "N0"), good("/dev/sda", "S0")}, true, ""},
		"under other names":       {[]wipe.Drive{good("/dev/nvme7n1", "n0 "), good("/dev/sda", "S0")}, true, ""},
		"one is not there":        {[]wipe.Drive{good("/dev/nvme0n1", "N0")}, false, "/dev/sda: the inventory has it, and it was not seen"},
		"another one is there":    {[]wipe.Drive{good("/dev/nvme0n1", "N1"), good("/dev/sda", "")}, false, "/dev/nvme0n1 (serial N0): the inventory has it, and it was not seen"},
		"one that nobody knew of": {[]wipe.Drive{good("/dev/nvme0n1", "N0"), good("/dev/sda", ""), bad}, false, "/dev/sdb (serial U1): 0 of its blocks were read"},
		"none":                    {nil, false, "/dev/nvme0n1 (serial N0): the inventory has it, and it was not seen; /dev/sda: the inventory has it"},
	} {
		drives, proven, err := wipe.Judge(&wipe.Report{Drives: tc.drives}, disks)
		if got := wipe.Findings(drives, false); err != nil || proven != tc.proven || !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %v %q %v", name, proven, got, err)
		}
		if proven && (drives[0].Resource != "s/disk0" || drives[1].Resource != "s/disk1") {
			t.Errorf("%s: %+v", name, drives)
		}
	}
	if _, proven, err := wipe.Judge(&wipe.Report{}, nil); proven || err != nil {
		t.Errorf("a server without drives is proven to hold nothing: %v", err)
	}
}

// What nobody can have seen so is refused as a whole.
func TestAReportThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(d *wipe.Drive){
		"more blank than read":   func(d *wipe.Drive) { d.Blocks.Blank += 5 },
		"fewer":                  func(d *wipe.Drive) { d.Blocks.Blank = -1 },
		"the same block again":   func(d *wipe.Drive) { d.Blocks.Offsets[1] = 0 },
		"beyond the end":         func(d *wipe.Drive) { d.Blocks.Offsets[1] = size },
		"before the start":       func(d *wipe.Drive) { d.Blocks.Offsets[1] = -wipe.BlockSize },
		"between two blocks":     func(d *wipe.Drive) { d.Blocks.Offsets[1] = 1 },
		"blocks of no size":      func(d *wipe.Drive) { d.Blocks.Size = 1 },
		"data where none was":    func(d *wipe.Drive) { d.Blocks.Blank--; d.Blocks.Data = []int64{7} },
		"half a page":            func(d *wipe.Drive) { d.NVMe = []byte{1} },
		"what is no descriptor":  func(d *wipe.Drive) { d.ATA = []byte{1} },
		"unread and data in one": func(d *wipe.Drive) { d.Blocks.Blank -= 2; d.Blocks.Data, d.Blocks.Unread = []int64{0}, []int64{0} },
	} {
		d := wipe.Drive{Device: "/dev/sda", Size: size, Blocks: sampled(t, 300, nil)}
		change(&d)
		if _, proven, err := wipe.Judge(&wipe.Report{Drives: []wipe.Drive{d}}, nil); proven || !errors.Is(err, wipe.ErrReport) || !strings.Contains(err.Error(), "/dev/sda") {
			t.Errorf("%s: %v %v", name, proven, err)
		}
	}
	if _, _, err := wipe.Judge(&wipe.Report{Drives: make([]wipe.Drive, 129)}, nil); !errors.Is(err, wipe.ErrReport) {
		t.Error(err)
	}
}

// A report is sent until it is answered, and a refusal is final; no error has the token.
func TestAReportIsSent(t *testing.T) {
	answers := []int{http.StatusServiceUnavailable, http.StatusOK}
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var got wipe.Report
		if err := json.Unmarshal(body, &got); err != nil || len(got.Drives) != 1 {
			t.Errorf("%s: %v", body, err)
		}
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		code := answers[0]
		answers = answers[1:]
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"proven": true}`)
	}))
	defer srv.Close()
	r := &wipe.Report{Drives: []wipe.Drive{{Device: "/dev/sda"}}}
	a, err := wipe.Send(t.Context(), srv.Client(), srv.URL+"/", "t0k3n", r)
	if err != nil || !a.Proven || len(seen) != 2 || seen[1] != "POST /wipe Bearer t0k3n" {
		t.Errorf("%+v %v %q", a, err, seen)
	}
	answers = []int{http.StatusUnauthorized}
	if _, err := wipe.Send(t.Context(), srv.Client(), srv.URL, "t0k3n", r); err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "t0k3n") {
		t.Errorf("%v", err)
	}
	srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := wipe.Send(ctx, srv.Client(), srv.URL, "t0k3n", r); err == nil || strings.Contains(err.Error(), "t0k3n") {
		t.Errorf("%v", err)
	}
}
