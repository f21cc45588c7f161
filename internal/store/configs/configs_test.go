package configs_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/configs"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// site is a server with a GPU, and their ids.
func site(t *testing.T) (s *configs.Store, db *sqldb.DB, server, gpu string) {
	t.Helper()
	db = sqltest.Open(t)
	inv, e := cmdb.New(cmdb.DefaultConfig(), db, nil, nil), estate.New(db)
	inv.Follow(e)
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "a", Kind: schemas.KindServer}, {ID: "a/gpu0", Kind: schemas.KindGPU, Parent: "a"}}}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	v, err := e.Server(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	g, err := e.GPU(t.Context(), "a/gpu0")
	if err != nil {
		t.Fatal(err)
	}
	return configs.New(db), db, v.ID, g.ID
}

func TestVersionsGrowByOneWhoeverWritesAtOnce(t *testing.T) {
	s, db, server, gpu := site(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for k := range 5 {
				for err := error(nil); ; {
					_, err = s.PutServer(t.Context(), "li", server, 0, func(c *schemas.ServerConfig) { c.BIOS = map[string]any{"n": n*100 + k} })
					if err == nil {
						_, err = s.PutGPU(t.Context(), "li", gpu, 0, func(c *schemas.GPUConfig) { w := float64(n*100 + k + 1); c.PowerLimit = &w })
					}
					if sqldb.Again(err) {
						continue
					} else if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	all.Wait()
	servers, err := s.Servers(t.Context(), server, 0, 100)
	gpus, err2 := s.GPUs(t.Context(), gpu, 0, 100)
	if err != nil || err2 != nil || len(servers) != 40 || len(gpus) != 40 {
		t.Fatalf("%d and %d versions: %v %v", len(servers), len(gpus), err, err2)
	}
	for i := range servers {
		if servers[i].Version != int64(40-i) || gpus[i].Version != int64(40-i) {
			t.Errorf("%d: versions %d and %d", i, servers[i].Version, gpus[i].Version)
		}
	}
	chain, err := audit.New(db, time.Now).Check(t.Context())
	if err != nil || chain.Broken != 0 || chain.Rows < 80 {
		t.Errorf("%+v %v", chain, err)
	}
}

func TestARequestMakesOneVersion(t *testing.T) {
	s, _, server, gpu := site(t)
	ctx := sqldb.WithRequest(t.Context(), "li k1")
	for range 2 {
		c, err := s.PutServer(ctx, "li", server, 0, func(c *schemas.ServerConfig) { c.RAID = map[string]any{"level": 1} })
		if err != nil || c.Version != 1 || c.BIOS == nil || c.Server != "a" {
			t.Errorf("%+v %v", c, err)
		}
		g, err := s.PutGPU(ctx, "li", gpu, 0, func(c *schemas.GPUConfig) { clock := int64(2619); c.ID, c.MemoryClock = "", &clock })
		if err != nil || g.Version != 1 || *g.MemoryClock != 2619 || g.Driver == nil {
			t.Errorf("%+v %v", g, err)
		}
	}
	same := func(*schemas.ServerConfig) {}
	if c, err := s.PutServer(t.Context(), "bo", server, 1, same); err != nil || c.Version != 1 || c.CreatedBy != "li" {
		t.Errorf("what stays as it was is a version: %+v %v", c, err)
	}
	if _, err := s.PutServer(t.Context(), "bo", server, 2, same); !errors.Is(err, entity.ErrChanged) {
		t.Error(err)
	}
}

func TestTheDatabaseKeepsBounds(t *testing.T) {
	s, _, server, gpu := site(t)
	var field *entity.FieldError
	for want, put := range map[string]func() error{
		"power_limit": func() error {
			_, err := s.PutGPU(t.Context(), "li", gpu, 0, func(c *schemas.GPUConfig) { w := -1.; c.PowerLimit = &w })
			return err
		},
		"memory_clock": func() error {
			_, err := s.PutGPU(t.Context(), "li", gpu, 0, func(c *schemas.GPUConfig) { n := int64(0); c.MemoryClock = &n })
			return err
		},
		"network_config": func() error {
			_, err := s.PutServer(t.Context(), "li", server, 0, func(c *schemas.ServerConfig) { c.Network = map[string]any{"x": strings.Repeat("x", configs.MaxBytes)} })
			return err
		},
	} {
		if err := put(); !errors.As(err, &field) || field.Field != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, err := range []error{
		func() error {
			_, err := s.PutServer(t.Context(), "li", "none", 0, func(*schemas.ServerConfig) {})
			return err
		}(),
		func() error {
			_, err := s.PutGPU(t.Context(), "li", "none", 0, func(*schemas.GPUConfig) {})
			return err
		}(),
		func() error { _, err := s.Server(t.Context(), server); return err }(),
		func() error { _, err := s.GPU(t.Context(), gpu); return err }(),
	} {
		if !errors.Is(err, entity.ErrNone) {
			t.Error(err)
		}
	}
}

// TestOneOperationAServerIsClaimed has many ask for something on one server at once, each for another part of it.
func TestOneOperationAServerIsClaimed(t *testing.T) {
	s, _, _, _ := site(t)
	var subjects []string
	for i := range 8 {
		subjects = append(subjects, fmt.Sprint("u", i))
	}
	claim := func(subject string) error {
		return s.Claim(t.Context(), &configs.Standing{ConfigState: schemas.ConfigState{
			Subject: subject, Kind: schemas.ConfigOfGPU, Name: "a/" + subject, Server: "a", Operation: "op-" + subject,
		}}, subjects)
	}
	errs := make([]error, len(subjects))
	var all sync.WaitGroup
	for i, subject := range subjects {
		all.Go(func() {
			for errs[i] = claim(subject); sqldb.Again(errs[i]); {
				errs[i] = claim(subject)
			}
		})
	}
	all.Wait()
	got, of := 0, ""
	for i, err := range errs {
		switch {
		case err == nil:
			got, of = got+1, subjects[i]
		case !errors.Is(err, entity.ErrChanged):
			t.Error(err)
		}
	}
	if got != 1 {
		t.Fatalf("%d operations are under way on one server", got)
	}
	st, _, err := s.State(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	st.Operation = ""
	if err := s.PutState(t.Context(), &st); err != nil {
		t.Fatal(err)
	}
	if err := claim("u9"); err != nil {
		t.Errorf("after the end of the first: %v", err)
	}
}
