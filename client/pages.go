package client

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
)

// All lists everything that a list has, page by page as it is read: path is a route below /api/v1 whose answers have
// items of T (such as [auspex/schemas.Allocation] of "allocations") and next. After an error it ends.
func All[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		for {
			var page struct {
				Items []T    `json:"items"`
				Next  string `json:"next"`
			}
			if err := c.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, &page); err != nil {
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
			query.Set("after", page.Next)
		}
	}
}
