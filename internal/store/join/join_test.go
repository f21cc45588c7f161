package join_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// A child of these tests joins with a token and ends without an answer.
const dieDSN = "AUSPEX_TEST_JOIN_DSN"

func TestMain(m *testing.M) {
	dsn := os.Getenv(dieDSN)
	if dsn == "" {
		os.Exit(m.Run())
	}
	db, err := sqldb.Open(context.Background(), dsn)
	if err != nil {
		panic(err)
	}
	s := join.New(db, nil, nil)
	for i := 0; ; i++ {
		a, err := s.Admit(context.Background(), os.Getenv("AUSPEX_TEST_JOIN_TOKEN"), machine(i))
		fmt.Println(i, a.Token, err)
	}
}

func machine(n int) join.Machine {
	return join.Machine{
		Key: fmt.Sprintf("%064x", n+1), Serial: fmt.Sprintf("SN%d", 1000+n), Hostname: fmt.Sprintf("gpu-%d", n), Address: fmt.Sprintf("10.0.%d.%d:4711", n/250, n%250),
	}
}

func create(t *testing.T, s *join.Store, spec join.Spec) string {
	t.Helper()
	plain, _, err := s.Create(t.Context(), "ana", spec)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func token(t *testing.T, s *join.Store, name string) join.Token {
	t.Helper()
	all, _, err := s.Tokens(t.Context(), "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("no token %s in %v", name, all)
	return join.Token{}
}

// Of all that try at once, over two processes' stores, as many join as the token has uses.
func TestATokenHasNoMoreMachinesThanUses(t *testing.T) {
	const uses, callers = 5, 40
	dsn := sqltest.DSN(t)
	var stores []*join.Store
	for range 2 {
		db, err := sqldb.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		stores = append(stores, join.New(db, nil, nil))
	}
	plain := create(t, stores[0], join.Spec{Name: "image", Uses: uses})
	var joined, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			// Each machine twice at once, as one that gave up waiting and tries again.
			var both sync.WaitGroup
			var ok atomic.Int64
			for k := range 2 {
				both.Go(func() {
					a, err := stores[(i+k)%2].Admit(t.Context(), plain, machine(i))
					switch {
					case err == nil && a.Token == "image":
						ok.Add(1)
					case !errors.Is(err, join.ErrRefused) || strings.Contains(err.Error(), plain):
						t.Errorf("machine %d: %+v %v", i, a, err)
					}
				})
			}
			both.Wait()
			switch ok.Load() {
			case 2:
				joined.Add(1)
			case 0:
				refused.Add(1)
			default:
				t.Errorf("machine %d was admitted once of twice", i)
			}
		})
	}
	wg.Wait()
	if joined.Load() != uses || refused.Load() != callers-uses {
		t.Errorf("%d joined, %d were refused", joined.Load(), refused.Load())
	}
	if got := token(t, stores[1], "image"); got.Used != uses || got.State(time.Now()) != "used" {
		t.Errorf("%+v", got)
	}
	admitted, err := stores[1].Admitted(t.Context())
	if err != nil || len(admitted) != uses {
		t.Errorf("%d are admitted: %v", len(admitted), err)
	}
}

// A process that dies between binding and answering costs nobody a use.
func TestAMachineWhoseAnswerWasLostTriesAgain(t *testing.T) {
	dsn := sqltest.DSN(t)
	db, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s := join.New(db, nil, nil)
	plain := create(t, s, join.Spec{Name: "image", Uses: join.MaxUses})
	used := token(t, s, "image").Used
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), dieDSN+"="+dsn, "AUSPEX_TEST_JOIN_TOKEN="+plain)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		enough := used + 1 + rand.Int64N(100) // it is killed at any moment
		waittest.For(t, "no machine is bound", func() bool { return token(t, s, "image").Used >= enough })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if used = token(t, s, "image").Used; used == join.MaxUses {
			t.Fatal("the child was not killed in the middle")
		}
	}
	for i := range int(used) { // all that are bound, the last of them without having heard
		if a, err := s.Admit(t.Context(), plain, machine(i)); err != nil || a.Token != "image" {
			t.Fatalf("machine %d: %+v %v", i, a, err)
		}
	}
	if again := token(t, s, "image").Used; again != used {
		t.Errorf("the same machines have used %d more", again-used)
	}
	if _, err := audit.Verify(t.Context(), db); err != nil {
		t.Error(err)
	}
}

func TestWhoIsRefused(t *testing.T) {
	s := join.New(sqltest.Open(t), nil, nil)
	one := create(t, s, join.Spec{Name: "one"})
	short := create(t, s, join.Spec{Name: "short", Expiry: time.Minute})
	gone := create(t, s, join.Spec{Name: "gone"})
	if err := s.Revoke(t.Context(), "ana", "gone"); err != nil {
		t.Fatal(err)
	}
	s.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	if _, err := s.Admit(t.Context(), one, machine(0)); err != nil {
		t.Fatal(err)
	}
	bad := machine(1)
	bad.Serial = "S\n1"
	for name, c := range map[string]struct {
		token string
		m     join.Machine
		want  string
	}{
		"another machine":       {one, machine(1), "the join token one has been used by 1 machines, and is for 1"},
		"an unknown token":      {"abc", machine(1), "its join token is not known"},
		"no token":              {"", machine(1), "it shows no join token, and has not joined before"},
		"too late":              {short, machine(1), "the join token short expired at "},
		"a revoked token":       {gone, machine(1), "the join token gone was revoked"},
		"a serial over 2 lines": {one, bad, "its serial number has more than 128 characters, or some that do not print"},
		"no key":                {one, join.Machine{Key: "x"}, "its key is no SHA-256 in hex"},
	} {
		t.Run(name, func(t *testing.T) {
			c.m.Address = name // each from elsewhere, so that each is written
			_, err := s.Admit(t.Context(), c.token, c.m)
			if !errors.Is(err, join.ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), one) {
				t.Errorf("error %v", err)
			}
		})
	}
	if got := token(t, s, "one"); got.Refused != 1 || got.RefusedFrom != "another machine" {
		t.Errorf("in the list: %+v", got)
	}
}

// A machine that has joined comes back with its key, as often as it likes and after the
// token's end; not after it or the token was revoked.
func TestAMachineComesBackUntilItIsRevoked(t *testing.T) {
	db := sqltest.Open(t)
	s, other := join.New(db, nil, nil), join.New(db, nil, nil)
	plain := create(t, s, join.Spec{Name: "image", Uses: 2, Expiry: time.Minute})
	for i := range 2 {
		if _, err := s.Admit(t.Context(), plain, machine(i)); err != nil {
			t.Fatal(err)
		}
	}
	other.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	back := func(i int, token string) error { _, err := other.Admit(t.Context(), token, machine(i)); return err }
	for i, token := range []string{plain, ""} {
		if err := back(i, token); err != nil {
			t.Errorf("after the token's end: %v", err)
		}
	}
	if err := s.RevokeMachine(t.Context(), "ana", machine(0).Key); err != nil {
		t.Fatal(err)
	}
	admitted, err := other.Admitted(t.Context())
	if d := cmp.Diff(map[string]join.Admission{machine(1).Key: {Token: "image"}}, admitted); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if err := back(0, plain); !errors.Is(err, join.ErrRefused) {
		t.Errorf("a machine that was revoked: %v", err)
	}
	if err := s.Revoke(t.Context(), "ana", "image"); err != nil {
		t.Fatal(err)
	}
	if err := back(1, ""); !errors.Is(err, join.ErrRefused) {
		t.Errorf("a machine whose token was revoked: %v", err)
	}
	fresh := create(t, s, join.Spec{Name: "again", Uses: 2})
	if err := back(1, fresh); err != nil {
		t.Errorf("with another token: %v", err)
	}
	if err := back(0, fresh); !errors.Is(err, join.ErrRefused) {
		t.Errorf("a machine that was revoked itself, with another token: %v", err)
	}
}

func inventory(t *testing.T, resources ...schemas.Resource) *cmdb.Inventory {
	t.Helper()
	inv, problems := cmdb.FromTopology(schemas.Topology{Version: 1, Resources: resources})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return inv
}

func server(id, serial, uuid string) schemas.Resource {
	return schemas.Resource{ID: id, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"serial": serial, "uuid": uuid})}
}

func TestWhereAMachineStands(t *testing.T) {
	inv := inventory(
		t, server("a", "SN1000", "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11"), server("b", "SN2", ""), server("c", "SN2", ""), server("d", "None", ""),
		server("e", "SN1001", ""),
	)
	s := join.New(sqltest.Open(t), inv, nil)
	image := create(t, s, join.Spec{Name: "image", Uses: 20})
	named := create(t, s, join.Spec{Name: "named", Server: "z"})
	is := func(n int, serial, uuid string) join.Machine {
		m := machine(n)
		m.Serial, m.UUID = serial, uuid
		return m
	}
	for i, c := range []struct {
		token        string
		m            join.Machine
		want, doubts string
	}{
		{image, is(0, " sn1000", ""), "a", ""},
		{image, is(1, "", "3B54BA4F0C6E44CEA7A80B3A3C5F8E11"), "", "is a already"},
		{image, is(2, "SN2", ""), "", "those of 2 servers: b, c"},
		{image, is(3, "None", ""), "", ""},
		{named, is(4, "SN1000", ""), "z", ""},
		{image, is(5, "SN9", ""), "", ""},
		{image, is(6, "SN1001", "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11"), "", "those of 2 servers: a, e"},
	} {
		a, err := s.Admit(t.Context(), c.token, c.m)
		b, _, err2 := s.Machine(t.Context(), c.m.Key)
		if a.Server != c.want || errors.Join(err, err2) != nil || (c.doubts == "") != (b.Doubt == "") || !strings.Contains(b.Doubt, c.doubts) {
			t.Errorf("%d: stands at %q, %q: %v %v", i, a.Server, b.Doubt, err, err2)
		}
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: schemas.Topology{Resources: []schemas.Resource{server("new", "SN9", "")}}},
		cmdb.ImportOptions{Source: "more", Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Admitted(t.Context()); err != nil || all[machine(5).Key].Server != "new" {
		t.Errorf("the inventory has it now: %+v %v", all, err)
	}
}

// Whose key comes back on other hardware stands nowhere until a person has looked.
func TestAKeyThatMovedToAnotherMachineStandsNowhere(t *testing.T) {
	s := join.New(sqltest.Open(t), inventory(t, server("a", "SN1000", ""), server("b", "SN1001", "")), nil)
	image := create(t, s, join.Spec{Name: "image"})
	m := machine(0)
	for _, c := range []struct{ serial, want string }{{"SN1000", "a"}, {"SN1001", ""}, {"SN1000", "a"}, {"", "a"}} {
		m.Serial = c.serial
		if a, err := s.Admit(t.Context(), image, m); err != nil || a.Server != c.want {
			t.Errorf("as %q it stands at %q, not at %q: %v", c.serial, a.Server, c.want, err)
		}
	}
}

// A server that was installed anew joins with a token of its own, and is not two.
func TestATokenForAServerReplacesItsFormerMachine(t *testing.T) {
	s := join.New(sqltest.Open(t), nil, nil)
	for i := range 2 {
		plain := create(t, s, join.Spec{Name: fmt.Sprintf("a%d", i), Server: "a"})
		if a, err := s.Admit(t.Context(), plain, machine(i)); err != nil || a.Server != "a" {
			t.Fatalf("%+v %v", a, err)
		}
	}
	all, err := s.Admitted(t.Context())
	if d := cmp.Diff(map[string]join.Admission{machine(1).Key: {Token: "a1", Server: "a"}}, all); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}

// Who guesses fills neither the audit nor the way of those who do not.
func TestGuessesAreBoundedAndSlowNobody(t *testing.T) {
	db := sqltest.Open(t)
	s := join.New(db, nil, nil)
	plain := create(t, s, join.Spec{Name: "image", Uses: 2})
	guess := machine(7)
	for range 500 {
		if _, err := s.Admit(t.Context(), "guess", guess); !errors.Is(err, join.ErrRefused) {
			t.Fatal(err)
		}
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 1000)
	n := 0
	for _, r := range rows {
		if r.Verb == "deny" {
			n++
		}
	}
	if err != nil || n == 0 || n > 3 {
		t.Errorf("%d refusals are in the audit: %v", n, err)
	}
	honest := machine(1)
	honest.Address = guess.Address // behind the same address
	if _, err := s.Admit(t.Context(), plain, honest); err != nil {
		t.Errorf("one with a token, from the same address: %v", err)
	}
}

func TestWhatATokenMayNotBe(t *testing.T) {
	s := join.New(sqltest.Open(t), nil, nil)
	create(t, s, join.Spec{Name: "image"})
	for name, spec := range map[string]join.Spec{
		"a name twice": {Name: "image"}, "no name": {}, "a name with a slash": {Name: "a/b"}, "no uses": {Name: "a", Uses: -1},
		"many machines for one server": {Name: "a", Server: "b", Uses: 2}, "longer than a year": {Name: "a", Expiry: 9000 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if plain, _, err := s.Create(t.Context(), "ana", spec); err == nil || plain != "" {
				t.Errorf("%q was created", spec.Name)
			}
		})
	}
}

// BenchmarkAdmit has machines join, and then come back, of a site of 10,000.
func BenchmarkAdmit(b *testing.B) {
	s := join.New(sqltest.Open(b), nil, nil)
	plain, _, err := s.Create(b.Context(), "ana", join.Spec{Name: "image", Uses: join.MaxUses})
	if err != nil {
		b.Fatal(err)
	}
	admit := func(b *testing.B, i int) {
		if _, err := s.Admit(b.Context(), plain, machine(i)); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	b.Run("join", func(b *testing.B) {
		for range b.N {
			admit(b, n)
			n++
		}
	})
	for ; n < 10_000; n++ {
		admit(b, n)
	}
	b.Run("return", func(b *testing.B) {
		for i := range b.N {
			admit(b, i%10_000)
		}
	})
	b.Run("admitted", func(b *testing.B) {
		for range b.N {
			if all, err := s.Admitted(b.Context()); err != nil || len(all) < 10_000 {
				b.Fatal(len(all), err)
			}
		}
	})
}
