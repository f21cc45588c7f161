package journal

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"auspex/internal/target"
)

func open(t *testing.T, dir string, size int64) *Journal {
	t.Helper()
	j, err := Open(dir, size, "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// kill ends a journal as the end of its process does.
func kill(t *testing.T, j *Journal) {
	t.Helper()
	if err := errors.Join(j.file.Close(), j.lock.Close()); err != nil {
		t.Fatal(err)
	}
	j.file = nil
}

func add(t *testing.T, j *Journal, n int) {
	t.Helper()
	for range n {
		next := j.Newest() + 1
		r := target.Record{Time: int64(next), Kind: KindKernel, Boot: "b", Data: strings.Repeat("x", 100) + strconv.FormatUint(next, 10)}
		if got, err := j.Append(r, "kernel", Mark{"b", next}); err != nil || got != next {
			t.Fatalf("append: %d, %v, want %d", got, err, next)
		}
	}
}

// all reads everything, and checks that it is in order and whole.
func all(t *testing.T, j *Journal) (first, last uint64) {
	t.Helper()
	for {
		list, err := j.Read(last, 50)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return first, last
		}
		for _, r := range list {
			if first == 0 {
				first = r.Sequence
			} else if r.Sequence != last+1 {
				t.Fatalf("record %d follows %d", r.Sequence, last)
			}
			if last = r.Sequence; !strings.HasSuffix(r.Data, strconv.FormatUint(last, 10)) {
				t.Fatalf("record %d holds %s", last, r.Data)
			}
		}
	}
}

func TestWhatIsAcknowledgedIsForgottenAndNumbersGoOn(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 64<<10)
	add(t, j, 200)
	if first, last := all(t, j); first != 1 || last != 200 {
		t.Errorf("read %d to %d", first, last)
	}
	if err := j.Acknowledge(201); err == nil {
		t.Error("a record that was never written was acknowledged")
	}
	if err := errors.Join(j.Acknowledge(150), j.Acknowledge(20)); err != nil {
		t.Fatal(err)
	}
	if first, last := all(t, j); first != 151 || last != 200 {
		t.Errorf("after 150: %d to %d", first, last)
	}
	if err := errors.Join(j.Acknowledge(200), j.Close()); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, 64<<10)
	if list, err := again.Read(0, 10); err != nil || len(list) != 0 {
		t.Errorf("after all: %v, %v", list, err)
	}
	if m := again.Mark("kernel"); m != (Mark{"b", 200}) {
		t.Errorf("mark %v", m)
	}
	add(t, again, 1)
	if again.Newest() != 201 || again.Status().ID != j.Status().ID {
		t.Errorf("status %+v", again.Status())
	}
}

func TestWhatGoesForSpaceIsCounted(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 64<<10)
	add(t, j, 100)
	if err := j.Acknowledge(100); err != nil {
		t.Fatal(err)
	}
	add(t, j, 3000)
	first, last := all(t, j)
	s := j.Status()
	if s.Bytes > 64<<10 || last != 3100 || s.Dropped != first-101 || s.First != first {
		t.Errorf("%+v, read %d to %d", s, first, last)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if again := open(t, dir, 64<<10).Status(); again != s {
		t.Errorf("opened again: %+v, want %+v", again, s)
	}
}

func TestATornRecordIsCutOff(t *testing.T) {
	for _, cut := range []int64{1, 7, 8, 9, 100} {
		dir := t.TempDir()
		j := open(t, dir, 64<<10)
		add(t, j, 10)
		name := j.name(j.segs[0])
		kill(t, j)
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, info.Size()-cut); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, 64<<10)
		if first, last := all(t, again); first != 1 || last != 9 || again.Mark("kernel").Next != 9 {
			t.Errorf("cut by %d: %d to %d, mark %v", cut, first, last, again.Mark("kernel"))
		}
		add(t, again, 5)
		if _, last := all(t, again); last != 14 {
			t.Errorf("cut by %d: appended to %d", cut, last)
		}
	}
}

func TestOneProcessHasAJournal(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, 64<<10)
	if j, err := Open(dir, 64<<10, "boot-1"); err == nil {
		_ = j.Close()
		t.Error("a second process opened the journal")
	}
}

func TestARecordThatIsTooLongIsRefused(t *testing.T) {
	j := open(t, t.TempDir(), 64<<10)
	if _, err := j.Append(target.Record{Data: strings.Repeat("x", maxPayload)}, "", Mark{}); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	add(t, j, 1)
}

// TestKilledWriterLosesNothing kills a process that appends, again and again, and finds
// every record that it said was appended.
func TestKilledWriterLosesNothing(t *testing.T) {
	const env = "AUSPEX_TEST_JOURNAL"
	if dir := os.Getenv(env); dir != "" {
		j := open(t, dir, 8<<20)
		for {
			add(t, j, 1)
			fmt.Printf("appended %d\n", j.Newest())
		}
	}
	dir := t.TempDir()
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriterLosesNothing$") //nolint:gosec // this program
		cmd.Env = append(os.Environ(), env+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said uint64
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			text, ok := strings.CutPrefix(lines.Text(), "appended ")
			if v, err := strconv.ParseUint(text, 10, 64); ok && err == nil {
				said = v
			}
			if n++; n == 300+round*7 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		j := open(t, dir, 8<<20)
		first, last := all(t, j)
		if first != 1 || last < said || j.Mark("kernel").Next != last {
			t.Errorf("round %d: said %d, found %d to %d, mark %v", round, said, first, last, j.Mark("kernel"))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Numbers are given again where the machine went down before they were on the disk, and
// only there: who reads by the number must know.
func TestAJournalThatMayHaveLostRecordsIsAnother(t *testing.T) {
	dir := t.TempDir()
	next := func(boot string, closed bool) (id string) {
		t.Helper()
		j, err := Open(dir, 64<<10, boot)
		if err != nil {
			t.Fatal(err)
		}
		add(t, j, 3)
		if closed {
			_ = j.Close()
		} else {
			kill(t, j)
		}
		return j.state.ID
	}
	first := next("boot-1", false)
	if next("boot-1", false) != first {
		t.Error("a kill made another journal of it, though nothing is lost")
	}
	after := next("boot-2", true)
	if after == first {
		t.Error("the machine went down, and it is the same journal")
	}
	if next("boot-3", false) != after {
		t.Error("it was closed before the machine went down, and is another")
	}
	if err := os.WriteFile(dir+"/"+stateFile, []byte("{\"id\":\"0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if torn := next("boot-3", false); torn == after || len(torn) != 16 {
		t.Errorf("with a torn state it is %q", torn)
	}
}

// What was acknowledged is remembered on the disk before what was appended: numbers go on
// behind it, and records behind the gap are found.
func TestNumbersGoOnBehindWhatIsLost(t *testing.T) {
	dir := t.TempDir()
	const size = 1 << 20 // of which all of it stands in one segment
	j := open(t, dir, size)
	add(t, j, 200)
	if err := j.Acknowledge(50); err != nil {
		t.Fatal(err)
	}
	tail := j.segs[len(j.segs)-1]
	kill(t, j)
	if err := os.Truncate(j.name(tail), tail.size/2); err != nil { // what the power took
		t.Fatal(err)
	}
	again := open(t, dir, size)
	add(t, again, 200)
	for after, want := range map[uint64]int{210: 190, 250: 150, 399: 1} {
		if list, err := again.Read(after, 300); err != nil || len(list) != want || list[0].Sequence != after+1 {
			t.Errorf("after %d: %d records, error %v", after, len(list), err)
		}
	}
	if s := again.Status(); s.Dropped != 0 || s.Last != 400 {
		t.Errorf("status %+v", s)
	}
}
