package redfish

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Gather reads a collection and what lies below it, so many levels deep, with one request (DSP0266, section 7.3). [Client.Get] and
// [Client.List] answer from that, each resource once, until [Client.Release]. A service that cannot is asked in the usual way then.
func (c *Client) Gather(ctx context.Context, path string, levels int) error {
	root, err := c.Root(ctx)
	if err != nil || !root.Gathers(levels) || c.shallow || path == "" {
		return err
	}
	o, err := c.Get(ctx, fmt.Sprintf("%s?$expand=.($levels=%d)", path, levels))
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrAuth) {
			return err
		}
		c.shallow = true // too much for it
		return nil
	}
	if c.gathered == nil {
		c.gathered = make(map[string]Object)
	}
	c.gather(map[string]any(o))
	if members := o.Objects("Members"); len(members) > 0 && members[0].IsLink() {
		c.shallow = true // it says that it does, and does not
	}
	return nil
}

// Gathers reports whether a service says that it expands so many levels at once.
func (r *Root) Gathers(levels int) bool { return r.levels >= levels }

// Gathered reports whether a resource, if it is a collection with all of its members, has come with others.
func (c *Client) Gathered(path string) bool {
	o := c.gathered[path]
	return o != nil && (o["Members"] == nil || whole(o))
}

// Release forgets what came with [Client.Gather].
func (c *Client) Release() { c.gathered = nil }

func (c *Client) gather(v any) {
	switch v := v.(type) {
	case map[string]any:
		o := Object(v)
		if id := o.ID(); id != "" && o["@odata.type"] != nil && !strings.Contains(id, "#") {
			c.gathered[id] = o
		}
		for k, x := range v {
			if k != "Links" {
				c.gather(x)
			}
		}
	case []any:
		for _, x := range v {
			c.gather(x)
		}
	}
}

// take hands out what was gathered of a path, once.
func (c *Client) take(path string) Object {
	o := c.gathered[path]
	if o != nil {
		delete(c.gathered, path)
		c.read += sizeOf(map[string]any(o)) // so that it is known what it takes to read it
		c.understood++
	}
	return o
}

// whole reports whether a collection has all of its members in full.
func whole(o Object) bool {
	members := o.Objects("Members")
	if n, ok := o.Number("Members@odata.count"); o.Next() != "" || o["Members"] == nil || ok && int(n) != len(members) {
		return false
	}
	for _, m := range members {
		if m.IsLink() {
			return false
		}
	}
	return true
}

// sizeOf is about how many bytes a value has as JSON.
func sizeOf(v any) (n int64) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			n += int64(len(k)) + 4 + sizeOf(x)
		}
		return n + 2
	case []any:
		for _, x := range v {
			n += 1 + sizeOf(x)
		}
		return n + 2
	case string:
		return int64(len(v)) + 2
	}
	return 5
}
