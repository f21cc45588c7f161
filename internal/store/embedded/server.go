package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"

	"auspex/internal/store/embedded/chdb"
)

// maxBody bounds a request in bytes; the largest insert of the sink is far below.
const maxBody = 512 << 20

var (
	formatClause  = regexp.MustCompile(`(?is)\sFORMAT\s+(\w+)\s*;?\s*$`)
	leadingNoise  = regexp.MustCompile(`(?s)^(?:\s+|--[^\n]*\n|/\*.*?\*/|\()+`)
	settingName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	exceptionCode = regexp.MustCompile(`^Code: (\d+)`)
)

// parameters of the HTTP interface that are not settings of a query.
var parameters = []string{
	"query", "database", "default_format", "client_protocol_version", "compress", "decompress", "query_id", "quota_key", "session_id",
	"session_timeout", "enable_http_compression", "wait_end_of_query", "role", "user", "password",
}

// hello is what clickhouse-go asks first. The answer says revision 0, so that the
// Native format of the library, which is of revision 0, passes through untouched.
const hello = "SELECT displayName(), version(), revision(), timezone()"

// session is a connection of the engine with what was set on it.
type session struct {
	*chdb.Conn
	database string
}

// server speaks the HTTP interface of ClickHouse in front of the library. It
// knows no users: whoever may open its socket may do everything.
type server struct {
	sessions chan *session
}

func newServer(conns []*chdb.Conn) *server {
	s := &server{sessions: make(chan *session, len(conns))}
	for _, c := range conns {
		s.sessions <- &session{Conn: c}
	}
	return s
}

// close waits for the statements that run and closes all connections.
func (s *server) close(ctx context.Context) {
	for range cap(s.sessions) {
		select {
		case c := <-s.sessions:
			c.Close()
		case <-ctx.Done():
			return
		}
	}
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ping":
		fmt.Fprintln(w, "Ok.")
		return
	case "/":
	default:
		http.NotFound(w, r)
		return
	}
	p, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, exception(36, "BAD_ARGUMENTS", err.Error()))
		return
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		fail(w, exception(48, "NOT_IMPLEMENTED", "the embedded engine takes no external tables"))
		return
	}
	body := io.Reader(http.MaxBytesReader(w, r.Body, maxBody))
	if p.Get("decompress") == "1" {
		body = compress.NewReader(body)
	}
	data, err := io.ReadAll(body)
	if err != nil && !errors.Is(err, io.EOF) { // a packed body ends with that; one that is cut off, with another
		fail(w, exception(33, "CANNOT_READ_ALL_DATA", "read request: "+err.Error()))
		return
	}
	st := statement{params: p, query: p.Get("query"), format: p.Get("default_format"), compress: p.Get("compress") == "1"}
	switch {
	case st.query == "":
		st.query = string(data)
	case keyword(st.query) == "INSERT":
		st.data, st.hasData = data, true
	default:
		st.query += "\n" + string(data)
	}
	if f := r.Header.Get("X-ClickHouse-Format"); f != "" {
		st.format = f
	}
	if st.format == "" {
		st.format = "TabSeparated"
	}
	select {
	case c := <-s.sessions:
		defer func() { s.sessions <- c }()
		st.run(r.Context(), c, &answer{w: w, compress: st.compress})
	case <-r.Context().Done():
	}
}

// statement is one request.
type statement struct {
	params            url.Values
	query, format     string
	data              []byte
	hasData, compress bool
}

func (st *statement) run(ctx context.Context, c *session, out *answer) {
	if st.query == hello {
		st.hello(c, out)
		return
	}
	if db := st.params.Get("database"); db != "" && db != c.database {
		if _, err := c.Query("USE `"+strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(db)+"`", "TSV"); err != nil {
			fail(out.w, err)
			return
		}
		c.database = db
	}
	set, reset, err := settings(st.params)
	if err != nil {
		fail(out.w, err)
		return
	}
	if set != "" {
		if reset != "" {
			defer func() { _, _ = c.Query(reset, "TSV") }()
		}
		if _, err := c.Query(set, "TSV"); err != nil {
			fail(out.w, err)
			return
		}
	}
	format := st.format
	if m := formatClause.FindStringSubmatchIndex(st.query); m != nil {
		format = st.query[m[2]:m[3]]
		st.query = st.query[:m[0]]
	} else {
		st.query = strings.TrimRight(st.query, "; \t\r\n")
	}
	switch {
	case st.hasData && len(st.data) > 0:
		err = c.Insert(st.query, format, st.data)
	case slices.Contains([]string{"SELECT", "WITH"}, keyword(st.query)):
		err = c.Stream(st.query, format, func(b []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return out.write(b)
		})
	default:
		var b []byte
		if b, err = c.Query(st.query, format); err == nil {
			err = out.write(b)
		}
	}
	switch {
	case err == nil:
	case out.begun: // the status has gone: only a broken connection tells
		panic(http.ErrAbortHandler)
	default:
		fail(out.w, err)
	}
}

// hello answers in the Native format of the client's revision.
func (st *statement) hello(c *session, out *answer) {
	b, err := c.Query("SELECT version(), timezone()", "TSVRaw")
	if err != nil {
		fail(out.w, err)
		return
	}
	version, zone, _ := strings.Cut(strings.TrimSpace(string(b)), "\t")
	var colName, colVersion, colZone proto.ColStr
	var colRevision proto.ColUInt32
	colName.Append("embedded")
	colVersion.Append(version)
	colRevision.Append(0)
	colZone.Append(zone)
	revision, _ := strconv.Atoi(st.params.Get("client_protocol_version"))
	var buf proto.Buffer
	block := proto.Block{Info: proto.BlockInfo{BucketNum: -1}, Columns: 4, Rows: 1}
	err = block.EncodeBlock(&buf, revision, proto.Input{
		{Name: "displayName()", Data: &colName},
		{Name: "version()", Data: &colVersion},
		{Name: "revision()", Data: &colRevision},
		{Name: "timezone()", Data: &colZone},
	})
	if err == nil {
		err = out.write(buf.Buf)
	}
	if err != nil {
		fail(out.w, err)
	}
}

// keyword returns the first word of a statement in upper case.
func keyword(query string) string {
	query = query[len(leadingNoise.FindString(query)):]
	end := strings.IndexFunc(query, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
	if end < 0 {
		end = len(query)
	}
	return strings.ToUpper(query[:end])
}

var quote = strings.NewReplacer("\\", "\\\\", "'", "\\'")

// settings turns parameters into a SET statement and the one that undoes it.
// Values are quoted; a name that is none is refused.
func settings(p url.Values) (set, reset string, err error) {
	var sets, resets []string
	for name, values := range p {
		if slices.Contains(parameters, name) {
			continue
		}
		if !settingName.MatchString(name) {
			return "", "", exception(115, "UNKNOWN_SETTING", strconv.Quote(name)+" is no name of a setting")
		}
		sets = append(sets, name+"='"+quote.Replace(values[0])+"'")
		if !strings.HasPrefix(name, "param_") {
			resets = append(resets, name+"=DEFAULT")
		}
	}
	slices.Sort(sets)
	if len(sets) > 0 {
		set = "SET " + strings.Join(sets, ", ")
	}
	if len(resets) > 0 {
		reset = "SET " + strings.Join(resets, ", ")
	}
	return set, reset, nil
}

// answer writes a result, compressed in blocks where the client asked for it.
type answer struct {
	w        http.ResponseWriter
	compress bool
	begun    bool
	lz4      *compress.Writer
}

func (a *answer) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	a.begun = true
	if !a.compress {
		_, err := a.w.Write(b)
		return err
	}
	if a.lz4 == nil {
		a.lz4 = compress.NewWriter(compress.LevelZero, compress.LZ4)
	}
	for chunk := range slices.Chunk(b, 1<<20) {
		if err := a.lz4.Compress(chunk); err != nil {
			return err
		}
		if _, err := a.w.Write(a.lz4.Data); err != nil {
			return err
		}
	}
	return nil
}

// exception makes an error in ClickHouse's own form, which its clients parse.
func exception(code int, name, text string) error {
	return errors.New("Code: " + strconv.Itoa(code) + ". DB::Exception: " + text + ". (" + name + ")")
}

// fail answers as ClickHouse does: the code in a header, the text in the body.
func fail(w http.ResponseWriter, err error) {
	msg := []byte(err.Error())
	code := "1002" // UNKNOWN_EXCEPTION
	if m := exceptionCode.FindSubmatch(msg); m != nil {
		code = string(m[1])
	}
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	w.Header().Set("X-ClickHouse-Exception-Code", code)
	status := http.StatusInternalServerError
	if slices.Contains([]string{"36", "47", "60", "62", "115"}, code) {
		status = http.StatusBadRequest
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(bytes.TrimRight(msg, "\n"), '\n'))
}
