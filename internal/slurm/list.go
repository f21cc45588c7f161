package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxElement bounds one element of a list in bytes.
const maxElement = 8 << 20

// Head is what an answer says beside its list.
type Head struct {
	// Updated is when the list was read, by the controller's clock, in Unix seconds; 0 where this version does not say.
	Updated int64
	// Unchanged says that nothing has changed since then, and that no list came.
	Unchanged bool
}

// List reads a list, such as "jobs" under the key "jobs", without holding it: each gets one element after the other as
// JSON, which is its own until it returns. With a time of the controller before which all is known (since, Unix
// seconds; 0 asks for all) the list comes only if something in it has changed: then all of it.
//
// An error says that the answer is cut off, is no JSON, complains, or lacks the list. Then nothing may be concluded
// from what each has seen.
func (c *Client) List(ctx context.Context, path, key string, since int64, each func(raw []byte)) (Head, error) {
	version, err := c.Version(ctx)
	if err != nil {
		return Head{}, err
	}
	return c.list(ctx, "/slurm/"+version+"/"+path, key, since, each)
}

func (c *Client) list(ctx context.Context, path, key string, since int64, each func(raw []byte)) (Head, error) {
	url := path
	if since > 0 { // the plain number that the documents name is refused by data_parser v0.0.40 and v0.0.41 of 24.11
		url += "?update_time=uts" + strconv.FormatInt(since, 10)
	}
	res, err := c.open(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Head{}, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNotModified {
		if since > 0 {
			return Head{Unchanged: true}, nil
		}
		return Head{}, fmt.Errorf("%w: %s%s: %s", ErrProtocol, c.base, path, res.Status)
	}
	body := &io.LimitedReader{R: res.Body, N: c.most + 1}
	head, found, n, err := decodeList(body, key, each)
	switch {
	case body.N <= 0:
		return Head{}, fmt.Errorf("%w: %s: answer is larger than %d bytes", ErrProtocol, path, c.most)
	case errors.Is(err, errComplains):
		return Head{}, fmt.Errorf("%w: slurmrestd: %w", ErrProtocol, err)
	case err != nil && ctx.Err() != nil:
		return Head{}, fmt.Errorf("read %s: %w", path, ctx.Err())
	case err != nil:
		return Head{}, fmt.Errorf("%w: %s%s: %w", ErrProtocol, c.base, path, err)
	case !found:
		return Head{}, fmt.Errorf("%w: %s%s: it lists no %s, not even none", ErrProtocol, c.base, path, key)
	}
	// 24.11 says of jobs that did not change, with status 200, that there are none, at no time.
	head.Unchanged = since > 0 && n == 0 && head.Updated == 0
	return head, nil
}

// errComplains says that an answer has errors.
var errComplains = errors.New("it complains")

// decodeList reads the object that an answer is. Text that is no UTF-8 is taken as it is: names of jobs may be so.
func decodeList(r io.Reader, key string, each func(raw []byte)) (head Head, found bool, n int, err error) {
	d := jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return head, false, 0, orShape(err, "the answer is no object")
	}
	var says answer
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return head, found, n, err
		}
		switch name := t.String(); {
		case name == key && d.PeekKind() == '[':
			found = true
			if _, err := d.ReadToken(); err != nil {
				return head, found, n, err
			}
			for d.PeekKind() != ']' {
				v, err := d.ReadValue()
				if err != nil {
					return head, found, n, err
				}
				if len(v) > maxElement {
					return head, found, n, fmt.Errorf("element %d of %s is larger than %d bytes", n, key, maxElement)
				}
				n++
				each(v)
			}
			if _, err := d.ReadToken(); err != nil {
				return head, found, n, err
			}
		case name == "errors" || name == "last_update":
			v, err := d.ReadValue()
			if err != nil {
				return head, found, n, err
			}
			if name == "errors" {
				if err := json.Unmarshal(v, &says.Errors); err != nil {
					return head, found, n, fmt.Errorf("its errors are not understood: %w", err)
				}
				continue
			}
			var at Number
			_ = at.UnmarshalJSON(v)
			head.Updated = max(0, at.N)
		default:
			if err := d.SkipValue(); err != nil {
				return head, found, n, err
			}
		}
	}
	if t, err := d.ReadToken(); err != nil || t.Kind() != '}' {
		return head, found, n, orShape(err, "the answer does not end")
	}
	if len(says.Errors) > 0 {
		return head, found, n, fmt.Errorf("%w: %s", errComplains, says.Errors[0])
	}
	return head, found, n, nil
}

func orShape(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

// Members calls f with the name and the value of each member of a JSON object, whose syntax was checked before; of what
// is no object, with none. Names are as they are written.
func Members(raw []byte, f func(name, value []byte)) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return
	}
	for i = skipSpace(raw, i+1); i < len(raw) && raw[i] == '"'; {
		end := skipString(raw, i)
		name := raw[i+1 : max(i+1, end-1)]
		if i = skipSpace(raw, end); i >= len(raw) || raw[i] != ':' {
			return
		}
		i = skipSpace(raw, i+1)
		if end = skipValue(raw, i); end <= i {
			return
		}
		f(name, raw[i:end])
		if i = skipSpace(raw, end); i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
}

// Word is the text of a JSON string, or of the first string in an array, as it is written; nil is none.
func Word(value []byte) []byte {
	if len(value) > 0 && value[0] == '[' {
		value = value[skipSpace(value, 1):]
	}
	if len(value) == 0 || value[0] != '"' {
		return nil
	}
	end := skipString(value, 0)
	return value[1:max(1, end-1)]
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		back := 0
		for b[i-1-back] == '\\' { // the quote that begins the string ends this at the latest
			back++
		}
		if back%2 == 0 {
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// ID reads the id of a job as lists of states write it: a number, or "7_3" and "7+1" of tasks and components.
func ID(value []byte) (int64, bool) {
	if w := Word(value); w != nil {
		s := string(w)
		if i := strings.IndexAny(s, "_+."); i >= 0 {
			s = s[:i]
		}
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil && n > 0
	}
	var n Number
	_ = n.UnmarshalJSON(value)
	return n.N, n.Set && n.N > 0
}
