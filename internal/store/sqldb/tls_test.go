package sqldb_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"auspex/internal/certtest"
	"auspex/internal/store/sqldb"
)

// server speaks PostgreSQL up to its refusal of a database: behind a handshake.
func server(l net.Listener, c *tls.Config) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			ask := make([]byte, 8) // SSLRequest: PostgreSQL, section 54.7
			if _, err := io.ReadFull(conn, ask); err != nil || binary.BigEndian.Uint32(ask[4:]) != 80877103 {
				return
			}
			if _, err := conn.Write([]byte("S")); err != nil {
				return
			}
			secure := tls.Server(conn, c)
			b := pgproto3.NewBackend(secure, secure)
			if _, err := b.ReceiveStartupMessage(); err != nil {
				return
			}
			b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "3D000", Message: "there is no such database"})
			_ = b.Flush()
		}()
	}
}

func TestWhichPostgreSQLIsTrusted(t *testing.T) {
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go server(l, h.Server)
		port := l.Addr().(*net.TCPAddr).Port
		dsn := fmt.Sprintf("host=127.0.0.1 port=%d user=auspex password=hunter2 dbname=none sslmode=verify-full sslrootcert=%s", port, h.CAFile)
		if h.CertFile != "" {
			dsn += fmt.Sprintf(" sslcert=%s sslkey=%s", h.CertFile, h.KeyFile)
		}
		_, err = sqldb.Open(t.Context(), dsn)
		if err == nil {
			t.Fatal("opened a database that is not there")
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is told: %v", err)
		}
		if sqldb.Away(err) && errors.As(err, new(*tls.CertificateVerificationError)) {
			t.Errorf("a server that is not trusted is waited for: %v", err)
		}
		if strings.Contains(err.Error(), "there is no such database") {
			return nil
		}
		return err
	})
}

func TestAServerThatIsAwayIsToldFromOneThatRefuses(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dsn := fmt.Sprintf("host=127.0.0.1 port=%d user=auspex dbname=none sslmode=disable", l.Addr().(*net.TCPAddr).Port)
	codes := make(chan string, 1)
	go func() {
		for code := range codes {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(conn, conn)
			if _, err := b.ReceiveStartupMessage(); err == nil {
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "no"})
				_ = b.Flush()
			}
			_ = conn.Close()
		}
	}()
	for _, tc := range []struct {
		code string
		away bool
	}{{"57P03", true}, {"57P01", true}, {"28P01", false}, {"3D000", false}, {"53300", false}} {
		codes <- tc.code
		if _, err := sqldb.Open(t.Context(), dsn); err == nil || sqldb.Away(err) != tc.away {
			t.Errorf("%s: away %v, want %v: %v", tc.code, sqldb.Away(err), tc.away, err)
		}
	}
	close(codes)
	_ = l.Close()
	if _, err := sqldb.Open(t.Context(), dsn); err == nil || !sqldb.Away(err) {
		t.Errorf("nobody listens: %v", err)
	}
}
