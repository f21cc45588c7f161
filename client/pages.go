package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
)

// All lists everything that a list has, page by page as it is read: path is a route below /api/v1 whose answers have
// items and next. It is for programs that find their routes in the document; others have a method for each list.
func All[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return all[T](ctx, c, Request{Method: http.MethodGet, Path: path, Query: query}, nil)
}

// all reads the pages of a list; after an error it ends.
func all[T any](ctx context.Context, c *Client, r Request, opts []Option) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		r := r.with(opts)
		if r.Query = maps.Clone(r.Query); r.Query == nil {
			r.Query = url.Values{}
		}
		for {
			var page struct {
				Items []T    `json:"items"`
				Next  string `json:"next"`
			}
			if err := c.Do(ctx, r, &page); err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			r.Query.Set("after", page.Next)
		}
	}
}

// either sends a request that is answered with an A under one status, and else with a B.
func either[A, B any](ctx context.Context, c *Client, r Request, opts []Option, status int) (*A, *B, error) {
	var got int
	var raw json.RawMessage
	r = r.with(opts)
	r.status = &got
	if err := c.Do(ctx, r, &raw); err != nil {
		return nil, nil, err
	}
	if got == status {
		a := new(A)
		return a, nil, json.Unmarshal(raw, a)
	}
	b := new(B)
	return nil, b, json.Unmarshal(raw, b)
}
