package client

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Option is what one request is sent with besides its parameters.
type Option func(*Request)

// IfMatch changes only the state that an ETag is of: another one is 412 (see [ETag]).
func IfMatch(etag string) Option { return func(r *Request) { r.IfMatch = etag } }

// ETag keeps the ETag of the answer, which is empty where the answer has none.
func ETag(to *string) Option { return func(r *Request) { r.etag = to } }

// Location keeps where the answer says that the new resource is.
func Location(to *string) Option { return func(r *Request) { r.location = to } }

// Key is an Idempotency-Key of the caller's, for what has to be done once over a restart of theirs.
func Key(key string) Option { return func(r *Request) { r.key = key } }

func (r Request) with(opts []Option) Request {
	for _, o := range opts {
		o(&r)
	}
	return r
}

// one sends a request that has one kind of answer.
func one[T any](ctx context.Context, c *Client, r Request, opts []Option) (T, error) {
	var out T
	err := c.Do(ctx, r.with(opts), &out)
	return out, err
}

// given is a body that may be left out.
func given[T any](body *T) any {
	if body == nil {
		return nil
	}
	return body
}

// ask puts a parameter into a query, unless it is zero.
func ask[T any](q url.Values, name string, v T) {
	switch v := any(v).(type) {
	case time.Time:
		if !v.IsZero() {
			q.Set(name, v.UTC().Format(time.RFC3339Nano))
		}
	case *bool:
		if v != nil {
			q.Set(name, strconv.FormatBool(*v))
		}
	case int, int64, float64, string:
		if text := fmt.Sprint(v); text != "" && text != "0" {
			q.Set(name, text)
		}
	default:
		panic(fmt.Sprintf("client: no parameter is a %T", v))
	}
}
