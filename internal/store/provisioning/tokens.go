package provisioning

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
)

// KindMetadataToken is what rows of the audit about tokens of servers are about, and KindUserData
// those of who has read the user data of one.
const (
	KindMetadataToken = "metadata_token"
	KindUserData      = "user_data"
)

// Token is with what a server shows which one it is. The secret itself is not kept.
type Token struct {
	ServerID  string    `json:"server_id"`
	Server    string    `json:"server"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
}

// hashOf is what is kept of a secret. It has 256 random bits, so that a plain hash is enough.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func scanToken(rows *sql.Rows) (t Token, err error) {
	var created int64
	err = rows.Scan(&t.ServerID, &t.Server, &t.CreatedBy, &created)
	t.CreatedAt = time.Unix(0, created).UTC()
	return t, err
}

const tokenColumns = `SELECT k.server_id, s.name, k.created_by, k.created_ns FROM metadata_tokens k JOIN servers s ON s.id=k.server_id WHERE `

// IssueToken makes the token of a server, by its id or name, for by, in place of one that it had.
// The secret is returned once.
func (s *Store) IssueToken(ctx context.Context, by, server string) (secret string, t Token, err error) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	secret = base64.RawURLEncoding.EncodeToString(b[:])
	err = s.tokenOf(ctx, server, func(tx *sql.Tx, before *Token, of Token) error {
		of.CreatedBy, of.CreatedAt = by, s.now().UTC()
		if _, err := tx.ExecContext(ctx, `INSERT INTO metadata_tokens (server_id, hash, created_by, created_ns) VALUES ($1,$2,$3,$4)
ON CONFLICT (server_id) DO UPDATE SET hash=excluded.hash, created_by=excluded.created_by, created_ns=excluded.created_ns`,
			of.ServerID, hashOf(secret), by, of.CreatedAt.UnixNano()); err != nil {
			return err
		}
		t = of
		if before != nil {
			return entity.Audit(ctx, tx, s.now(), by, entity.Update, KindMetadataToken, of.Server, *before, of)
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Create, KindMetadataToken, of.Server, nil, of)
	})
	if err != nil {
		return "", t, fmt.Errorf("issue a token for %s: %w", server, err)
	}
	return secret, t, nil
}

// RevokeToken takes the token of a server away. The error wraps [entity.ErrNone] where it has none.
func (s *Store) RevokeToken(ctx context.Context, by, server string) error {
	err := s.tokenOf(ctx, server, func(tx *sql.Tx, before *Token, of Token) error {
		if before == nil {
			return entity.ErrNone
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM metadata_tokens WHERE server_id=$1`, of.ServerID); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindMetadataToken, of.Server, *before, nil)
	})
	if err != nil {
		return fmt.Errorf("revoke the token of %s: %w", server, err)
	}
	return nil
}

// tokenOf changes the token of a server; before is nil where there is none.
func (s *Store) tokenOf(ctx context.Context, server string, change func(tx *sql.Tx, before *Token, of Token) error) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		v, err := estate.LockServer(ctx, tx, server) // its token is changed by one at a time
		if err != nil {
			return err
		}
		found, err := sqldb.Rows(ctx, tx, scanToken, tokenColumns+`k.server_id=$1`, v.ID)
		if err != nil {
			return err
		}
		var before *Token
		if len(found) > 0 {
			before = &found[0]
		}
		return change(tx, before, Token{ServerID: v.ID, Server: v.Name})
	})
}

// Tokens lists the tokens of servers by the names of these, n of them after a name.
func (s *Store) Tokens(ctx context.Context, after string, n int) (out []Token, next string, err error) {
	if out, err = sqldb.Rows(ctx, s.db, scanToken, tokenColumns+`s.name>$1 ORDER BY s.name LIMIT $2`, after, n+1); err != nil {
		return nil, "", fmt.Errorf("read tokens of servers: %w", err)
	}
	if len(out) > n {
		out, next = out[:n], out[n-1].Server
	}
	return out, next, nil
}

// Bearer is the name of the server whose token a secret is, or "".
func (s *Store) Bearer(ctx context.Context, secret string) (server string, err error) {
	found, err := sqldb.Rows(ctx, s.db, scanToken, tokenColumns+`k.hash=$1`, hashOf(secret))
	if err != nil {
		return "", fmt.Errorf("read tokens of servers: %w", err)
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0].Server, nil
}

// UserDataRead writes into the audit that a server has read its user data, and how it showed which
// one it is.
func (s *Store) UserDataRead(ctx context.Context, server, how string) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		return audit.Append(ctx, tx, audit.Row{Time: s.now(), Actor: server, Verb: "read", Kind: KindUserData, Subject: server, Detail: how})
	})
	if err != nil {
		return fmt.Errorf("audit user data of %s: %w", server, err)
	}
	return nil
}
