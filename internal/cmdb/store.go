package cmdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"auspex/schemas"
)

// maxVersion bounds a version of the inventory when it is unpacked, in bytes.
const maxVersion = 4 << 30

func pack(t schemas.Topology) ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return compress(text)
}

func compress(text []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(text, nil), nil
}

func unpack(packed []byte) (t schemas.Topology, err error) {
	text, err := decompress(packed)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(text, &t)
}

func decompress(packed []byte) ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxVersion))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(packed, nil)
}

// readSources returns what each source brings, in the order of their imports.
func readSources(ctx context.Context, q querier) ([]brought, error) {
	var out []brought
	err := scan(ctx, q, `SELECT source, topology, lost FROM inventory_imports
WHERE version IN (SELECT MAX(version) FROM inventory_imports GROUP BY source) ORDER BY version`, func(rows *sql.Rows) error {
		var b brought
		var packed, lost []byte
		if err := rows.Scan(&b.source, &packed, &lost); err != nil {
			return err
		}
		var err, err2 error
		b.t, err = unpack(packed)
		b.lost, err2 = unpackLosses(lost)
		err = errors.Join(err, err2)
		out = append(out, b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the sources of the inventory: %w", err)
	}
	return out, nil
}

// writeVersions keeps what the import's source brings now, and forgets what is
// older than the last keep imports of it.
func writeVersions(ctx context.Context, tx *sql.Tx, diff difference, r Report, origin string, keep int) (version int64, err error) {
	if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM inventory_imports`).Scan(&version); err != nil {
		return 0, err
	}
	insert := func(b brought, origin string, r Report) error {
		version++
		packed, err := pack(b.t)
		if err != nil {
			return err
		}
		lost, err := packLosses(b.lost)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO inventory_imports
(version, source, time_ns, origin, resources, links, added, changed, removed, topology, lost) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)`,
			version, b.source, time.Now().UnixNano(), origin, len(b.t.Resources), len(b.t.Links), r.Added, r.Changed, r.Removed, packed, lost)
		return err
	}
	if diff.adopted {
		if err := insert(diff.before, "before versions were kept", Report{}); err != nil {
			return 0, err
		}
	}
	own := diff.sources[len(diff.sources)-1]
	if err := insert(own, origin, r); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM inventory_imports WHERE source=$1 AND version <=
(SELECT version FROM inventory_imports WHERE source=$2 ORDER BY version DESC LIMIT 1 OFFSET $3)`, own.source, own.source, keep)
	return version, err
}
