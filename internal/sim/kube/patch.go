package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func mustBeSet() field.ErrorList {
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")}
}

// patch changes an object by a merge patch (RFC 7386) or a JSON patch (RFC 6902).
func (h *Handler) patch(r *http.Request, res *Resource, id ID, part Part) (*unstructured.Unstructured, error) {
	b, kind, err := content(r)
	if err != nil {
		return nil, err
	}
	var merged map[string]any
	var ops []operation
	switch types.PatchType(kind) {
	case types.MergePatchType:
		err = utiljson.Unmarshal(b, &merged)
	case types.JSONPatchType:
		err = json.Unmarshal(b, &ops)
	default:
		return nil, unsupported(kind)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the patch cannot be read: " + err.Error())
	}
	return h.store.Change(id, part, dryRun(r), func(now *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		doc := any(now.Object)
		if merged != nil {
			doc = merge(doc, merged)
		}
		for i := range ops {
			var err error
			if doc, err = ops[i].apply(doc); err != nil {
				return nil, apierrors.NewInvalid(res.GroupKind(), id.Name, field.ErrorList{field.Invalid(field.NewPath("patch"), ops[i].Path, err.Error())})
			}
		}
		whole, _ := doc.(map[string]any) // which it was, and no operation replaces it as a whole
		return &unstructured.Unstructured{Object: whole}, nil
	})
}

// merge is MergePatch of RFC 7386, section 2.
func merge(doc, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return runtime.DeepCopyJSONValue(patch)
	}
	out, ok := doc.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = merge(out[k], v)
		}
	}
	return out
}

// operation is one of a JSON patch (RFC 6902, section 4): add, remove, replace or test.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

func (o *operation) apply(doc any) (any, error) {
	var value any
	if len(o.Value) > 0 {
		if err := utiljson.Unmarshal(o.Value, &value); err != nil {
			return nil, err
		}
	}
	if o.Path == "" || o.Path[0] != '/' {
		return nil, fmt.Errorf("%s is no path into the object", strconv.Quote(o.Path))
	}
	seg := strings.Split(o.Path[1:], "/")
	for i := range seg {
		seg[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(seg[i])
	}
	return o.at(doc, seg, value)
}

// at returns a part of a document with the operation done in it.
func (o *operation) at(doc any, seg []string, value any) (any, error) {
	key, last := seg[0], len(seg) == 1
	switch in := doc.(type) {
	case map[string]any:
		was, ok := in[key]
		if !last {
			if !ok {
				return nil, fmt.Errorf("there is no %s", key)
			}
			now, err := o.at(was, seg[1:], value)
			in[key] = now
			return in, err
		}
		if !ok && o.Op != "add" {
			return nil, fmt.Errorf("there is no %s", key)
		}
		switch o.Op {
		case "add", "replace":
			in[key] = value
			return in, nil
		case "remove":
			delete(in, key)
			return in, nil
		}
		return in, o.test(was, value)
	case []any:
		n, err := strconv.Atoi(key)
		if key == "-" {
			n, err = len(in), nil
		}
		if err != nil || n < 0 || n > len(in) || n == len(in) && (!last || o.Op != "add") {
			return nil, fmt.Errorf("there is no item %s", key)
		}
		if !last {
			in[n], err = o.at(in[n], seg[1:], value)
			return in, err
		}
		switch o.Op {
		case "add":
			return append(in[:n:n], append([]any{value}, in[n:]...)...), nil
		case "replace":
			in[n] = value
			return in, nil
		case "remove":
			return append(in[:n:n], in[n+1:]...), nil
		}
		return in, o.test(in[n], value)
	}
	return nil, fmt.Errorf("%s is in nothing that has parts", key)
}

func (o *operation) test(is, want any) error {
	switch {
	case o.Op != "test":
		return fmt.Errorf("%s is none of add, remove, replace and test", strconv.Quote(o.Op))
	case !equality.Semantic.DeepEqual(is, want):
		return fmt.Errorf("the test of %s fails", o.Path)
	}
	return nil
}
