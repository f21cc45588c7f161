package estate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/store/entity"
)

// HoldBack holds back the server of a name, so that nobody is given it, where nothing holds it yet. One that is not
// kept here is left to its scheduler.
func HoldBack(ctx context.Context, tx *sql.Tx, now time.Time, by, name, why string) error {
	res, err := tx.ExecContext(ctx, `UPDATE servers SET hold=$1, hold_by=$2, revision=revision+1, updated_ns=CASE WHEN updated_ns > $3 THEN updated_ns ELSE $3 END
WHERE name=$4 AND hold=''`, why, by, now.UnixNano(), name)
	return held(ctx, tx, now, res, err, by, "hold", name, why)
}

// LetGo ends what by has held a server back for, for who. What others hold it back for stays.
func LetGo(ctx context.Context, tx *sql.Tx, now time.Time, by, who, name string) error {
	res, err := tx.ExecContext(ctx, `UPDATE servers SET hold='', hold_by='', revision=revision+1, updated_ns=CASE WHEN updated_ns > $1 THEN updated_ns ELSE $1 END
WHERE name=$2 AND hold<>'' AND hold_by=$3`, now.UnixNano(), name, by)
	return held(ctx, tx, now, res, err, who, "release", name, "")
}

// held audits a change of a hold, where there was one.
func held(ctx context.Context, tx *sql.Tx, now time.Time, res sql.Result, err error, by, verb, name, why string) error {
	if err != nil {
		return fmt.Errorf("%s server %s: %w", verb, name, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}
	return entity.Audit(ctx, tx, now, by, verb, KindServer, name, nil, map[string]string{"hold": why})
}
