package target

import (
	"maps"
	"slices"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Origin names the trees of this house's modules in a path (gNMI specification,
// section 2.7.1); a path without an origin means it as well.
const Origin = "auspex"

// A path that is longer, or has more keys, names nothing that is here.
const (
	maxElems = 32
	maxKeys  = 8
)

// resolve joins a prefix and a path of a request, and checks what they ask for. The
// name of a module before that of a node is left out: no two of ours share a node.
func resolve(prefix, path *gpb.Path) ([]*gpb.PathElem, error) {
	for _, p := range []*gpb.Path{prefix, path} {
		if o := p.GetOrigin(); o != "" && o != Origin {
			return nil, status.Errorf(codes.InvalidArgument, "origin %q is not supported: use %s", o, Origin)
		}
		if len(p.GetElement()) > 0 { //nolint:staticcheck // old clients still send it
			return nil, status.Error(codes.InvalidArgument, "path uses the deprecated field element: use elem")
		}
	}
	if len(prefix.GetElem())+len(path.GetElem()) > maxElems {
		return nil, status.Errorf(codes.InvalidArgument, "path has more than %d elements", maxElems)
	}
	var out []*gpb.PathElem
	for _, e := range slices.Concat(prefix.GetElem(), path.GetElem()) {
		name := e.GetName()
		if _, node, ok := strings.Cut(name, ":"); ok {
			name = node
		}
		if name == "" || len(e.GetKey()) > maxKeys {
			return nil, status.Error(codes.InvalidArgument, "path has an element without a name, or with too many keys")
		}
		out = append(out, &gpb.PathElem{Name: name, Key: e.GetKey()})
	}
	return out, nil
}

// covers reports whether a query names a path or something above it. "*" stands for
// any name or value of a key, as does a key that is left out; "..." for any number of
// elements (gNMI path conventions, section 2.3).
func covers(query, path []*gpb.PathElem) bool {
	for i, q := range query {
		if q.GetName() == "..." {
			for j := i; j <= len(path); j++ {
				if covers(query[i+1:], path[j:]) {
					return true
				}
			}
			return false
		}
		if i >= len(path) || !same(q, path[i]) {
			return false
		}
	}
	return true
}

// below reports whether a query can name something below a path.
func below(query, path []*gpb.PathElem) bool {
	for i := range min(len(query), len(path)) {
		if query[i].GetName() == "..." {
			return true
		}
		if !same(query[i], path[i]) {
			return false
		}
	}
	return true
}

func same(q, e *gpb.PathElem) bool {
	if q.GetName() != "*" && q.GetName() != e.GetName() {
		return false
	}
	for k, v := range q.GetKey() {
		if have, ok := e.GetKey()[k]; v != "*" && (!ok || have != v) {
			return false
		}
	}
	return true
}

// pathString writes a path in the notation of gNMI, keys in order.
func pathString(elems []*gpb.PathElem) string {
	var b strings.Builder
	for _, e := range elems {
		b.WriteString("/" + e.GetName())
		for _, k := range slices.Sorted(maps.Keys(e.GetKey())) {
			b.WriteString("[" + k + "=" + Key(e.GetKey()[k]) + "]")
		}
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
