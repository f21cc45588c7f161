package estate

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"auspex/internal/cmdb"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Keep implements [cmdb.Follower]: what somebody has or works on is not removed by an import.
func (s *Store) Keep(ctx context.Context, q sqldb.Queryer) (map[string]string, error) {
	pairs, err := sqldb.Rows(ctx, q, func(rows *sql.Rows) (p [2]string, err error) { return p, rows.Scan(&p[0], &p[1]) },
		`SELECT DISTINCT s.name, 'allocation ' || c.allocation_id FROM allocation_claims c JOIN servers s ON s.id=c.server_id WHERE c.state<>'released'
UNION ALL SELECT subject, 'leased by ' || holder FROM control_leases WHERE expires_ns>$1`, s.now().UnixNano())
	if err != nil {
		return nil, fmt.Errorf("list what is allocated or leased: %w", err)
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		out[p[0]] = p[1]
	}
	return out, nil
}

// Count implements [cmdb.Follower].
func (s *Store) Count(ctx context.Context, q sqldb.Queryer) (n int, err error) {
	counts, err := sqldb.Rows(ctx, q, func(rows *sql.Rows) (n int, err error) { return n, rows.Scan(&n) },
		`SELECT (SELECT count(*) FROM servers WHERE present) + (SELECT count(*) FROM gpus WHERE present)`)
	if err != nil {
		return 0, err
	}
	return counts[0], nil
}

// Kinds implements [cmdb.Follower].
func (s *Store) Kinds() []string { return []string{schemas.KindServer, schemas.KindGPU} }

// sizes are those of a GPU's model, such as `H100 80GB HBM3`.
var sizes = regexp.MustCompile(`(?i)\b(\d+) ?GB\b`)

func memory(r schemas.Resource) *float64 {
	text := r.Attrs.Get(schemas.AttrMemoryGB)
	if text == "" {
		if found := sizes.FindStringSubmatch(r.Attrs.Get(schemas.AttrModel)); found != nil {
			text = found[1]
		}
	}
	if gb, err := strconv.ParseFloat(text, 64); err == nil && gb > 0 && gb < 1e6 {
		return &gb
	}
	return nil
}

// Follow implements [cmdb.Follower]: rows of servers and GPUs become what the inventory says
// that they are. A server that a list of machines brings is ready, as one in use is, where its
// `status` says nothing else; what is reported by anybody else is discovered.
func (s *Store) Follow(ctx context.Context, tx *sql.Tx, f cmdb.Following) error {
	now := s.now().UnixNano()
	first := schemas.ServerReady
	if !f.Listed {
		first = schemas.ServerDiscovered
	}
	// Two imports at once take rows in one order.
	slices.SortFunc(f.Put, func(a, b cmdb.Placed) int { return strings.Compare(a.ID, b.ID) })
	var servers, gpus [][]any
	var of []string // the servers of GPUs
	for _, r := range f.Put {
		a := r.Attrs
		switch {
		case r.Kind == schemas.KindServer:
			status := first
			if slices.Contains(schemas.ServerLife.First, a.Get(schemas.AttrStatus)) {
				status = a.Get(schemas.AttrStatus)
			}
			servers = append(servers, []any{
				f.UUID(r.ID), r.ID, a.Get(schemas.AttrModel), status, a.Get(schemas.AttrPool), a.Get(schemas.AttrIPMIIP),
				a.Get(schemas.AttrRedfishURL), a.Get(schemas.AttrManagementIP), a.Get(schemas.AttrSerial), now, now, now,
			})
		case r.Kind == schemas.KindGPU && r.Server != "":
			gpus = append(gpus, []any{
				f.UUID(r.ID), r.ID, r.Server, a.Get(schemas.AttrModel), memory(r.Resource), a.Get(schemas.AttrSerial),
				a.Get(schemas.AttrDriverVersion), a.Get(schemas.AttrCUDAVersion), now, now, now,
			})
			of = append(of, r.Server)
		}
	}
	err := s.db.Insert(ctx, tx, `INSERT INTO servers
(id, name, model, status, pool_id, ipmi_ip, redfish_url, management_ip, serial_number, present, revision, since_ns, created_ns, updated_ns)`,
		`(?,?,?,?,COALESCE((SELECT id FROM pools WHERE lower(name)=lower(CAST(? AS TEXT))), (SELECT id FROM pools WHERE name='default')),?,?,?,?,TRUE,1,?,?,?)`,
		servers, `ON CONFLICT (name) DO UPDATE SET model=excluded.model, ipmi_ip=excluded.ipmi_ip, redfish_url=excluded.redfish_url,
  management_ip=excluded.management_ip, serial_number=excluded.serial_number, present=TRUE, revision=servers.revision+1,
  updated_ns=CASE WHEN excluded.updated_ns > servers.updated_ns THEN excluded.updated_ns ELSE servers.updated_ns END
WHERE servers.model<>excluded.model OR servers.ipmi_ip<>excluded.ipmi_ip OR servers.redfish_url<>excluded.redfish_url
  OR servers.management_ip<>excluded.management_ip OR servers.serial_number<>excluded.serial_number OR NOT servers.present`)
	if err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	ids, err := named(ctx, tx, of)
	if err != nil {
		return fmt.Errorf("servers of GPUs: %w", err)
	}
	gpus = slices.DeleteFunc(gpus, func(row []any) bool { // parts of what is no server
		id, there := ids[row[2].(string)]
		row[2] = id
		return !there
	})
	err = s.db.Insert(ctx, tx, `INSERT INTO gpus
(id, name, server_id, model, status, memory_gb, serial_number, driver_version, cuda_version, present, revision, since_ns, created_ns, updated_ns)`,
		`(?,?,?,?,'available',?,?,?,?,TRUE,1,?,?,?)`, gpus,
		`ON CONFLICT (name) DO UPDATE SET server_id=excluded.server_id, model=excluded.model, memory_gb=excluded.memory_gb, serial_number=excluded.serial_number,
  driver_version=excluded.driver_version, cuda_version=excluded.cuda_version, present=TRUE, revision=gpus.revision+1,
  updated_ns=CASE WHEN excluded.updated_ns > gpus.updated_ns THEN excluded.updated_ns ELSE gpus.updated_ns END
WHERE gpus.server_id<>excluded.server_id OR gpus.model<>excluded.model OR COALESCE(gpus.memory_gb,0)<>COALESCE(excluded.memory_gb,0)
  OR gpus.serial_number<>excluded.serial_number OR gpus.driver_version<>excluded.driver_version OR gpus.cuda_version<>excluded.cuda_version
  OR NOT gpus.present`)
	if err != nil {
		return fmt.Errorf("GPUs: %w", err)
	}
	for _, name := range f.Removed {
		for _, table := range []string{"servers", "gpus"} {
			if _, err := tx.ExecContext(ctx, `UPDATE `+table+` SET present=FALSE, revision=revision+1 WHERE name=$1 AND present`, name); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
		}
	}
	return nil
}

// named are the ids of servers, by name.
func named(ctx context.Context, tx *sql.Tx, names []string) (map[string]string, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	ids := make(map[string]string, len(names))
	for some := range slices.Chunk(names, 500) {
		list, args := sqldb.In(1, some)
		_, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (struct{}, error) {
			var name, id string
			err := rows.Scan(&name, &id)
			ids[name] = id
			return struct{}{}, err
		}, `SELECT name, id FROM servers WHERE name IN (`+list+`)`, args...)
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}
