package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"modernc.org/sqlite"
)

// keptStatements is how many prepared statements a connection of SQLite keeps; it compiles what it
// is asked anew otherwise, which takes as long as many a query itself. PostgreSQL's driver keeps its own.
const keptStatements = 256

// openSQLite is [sql.Open] with connections that keep their statements.
func openSQLite(dsn string) (*sql.DB, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(keeper{c}), nil
}

type keeper struct{ driver.Connector }

func (k keeper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := c.(sqliteConn)
	if !ok {
		return nil, errors.Join(errors.New("sqlite: its connections lack an interface of database/sql"), c.Close())
	}
	return &keepingConn{sqliteConn: full, kept: make(map[string]*kept)}, nil
}

// sqliteConn is what database/sql uses of a connection.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// keepingConn is a connection of SQLite; like any, it is used by one goroutine at a time.
type keepingConn struct {
	sqliteConn
	kept map[string]*kept
}

// kept is a statement, and whether rows of it are being read.
type kept struct {
	stmt    driver.Stmt
	reading bool
}

// statement returns the statement of a text, or nil while its rows are being read.
func (c *keepingConn) statement(ctx context.Context, text string) (*kept, error) {
	if k, ok := c.kept[text]; ok {
		if k.reading {
			return nil, nil
		}
		return k, nil
	}
	if len(c.kept) >= keptStatements { // texts that are made as they are asked; what is asked often is soon there again
		if err := c.drop(); err != nil {
			return nil, err
		}
	}
	stmt, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	k := &kept{stmt: stmt}
	c.kept[text] = k
	return k, nil
}

// drop closes the statements whose rows nobody reads.
func (c *keepingConn) drop() (err error) {
	for text, k := range c.kept {
		if !k.reading {
			delete(c.kept, text)
			err = errors.Join(err, k.stmt.Close())
		}
	}
	return err
}

// ExecContext implements [driver.ExecerContext].
func (c *keepingConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	k, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	if s, ok := k.execer(); ok {
		return s.ExecContext(ctx, args)
	}
	return c.sqliteConn.ExecContext(ctx, text, args)
}

// QueryContext implements [driver.QueryerContext].
func (c *keepingConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	k, err := c.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	if s, ok := k.queryer(); ok {
		rows, err := s.QueryContext(ctx, args)
		if err != nil {
			return nil, err
		}
		k.reading = true
		return &keptRows{rows, k}, nil
	}
	return c.sqliteConn.QueryContext(ctx, text, args)
}

func (k *kept) execer() (s driver.StmtExecContext, ok bool) {
	if k != nil {
		s, ok = k.stmt.(driver.StmtExecContext)
	}
	return s, ok
}

func (k *kept) queryer() (s driver.StmtQueryContext, ok bool) {
	if k != nil {
		s, ok = k.stmt.(driver.StmtQueryContext)
	}
	return s, ok
}

// Close implements [driver.Conn].
func (c *keepingConn) Close() error {
	for _, k := range c.kept {
		k.reading = false
	}
	return errors.Join(c.drop(), c.sqliteConn.Close())
}

// keptRows gives its statement back when it is closed.
type keptRows struct {
	driver.Rows
	of *kept
}

// Close implements [driver.Rows].
func (r *keptRows) Close() error {
	r.of.reading = false
	return r.Rows.Close()
}
