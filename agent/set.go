package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"auspex/agent/nvml"
	"auspex/internal/target"
)

const acknowledged = "/journal/config/acknowledged"

// patience bounds what settings of GPUs may take.
const patience = time.Minute

// set takes the acknowledgement of records, or settings of GPUs from who may change them.
func (a *Agent) set(ctx context.Context, peer target.Peer, values []target.Value) error {
	var wishes []nvml.Wish
	for _, v := range values {
		if v.Path == acknowledged {
			continue
		}
		w, err := wish(v)
		if err != nil {
			return err
		}
		wishes = append(wishes, w)
	}
	switch {
	case len(wishes) == 0:
		return a.acknowledge(values)
	case len(wishes) < len(values):
		return status.Errorf(codes.InvalidArgument, "%s and settings are set apart", acknowledged)
	case !slices.Contains(a.cfg.Allow.Settings, peer.Name):
		return status.Errorf(codes.PermissionDenied, "%s may not change settings: allow.settings of the agent does not name it", peer.Name)
	case a.gpus == nil:
		return status.Error(codes.FailedPrecondition, "this agent reads no GPUs")
	}
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	if err := a.gpus.Set(ctx, peer.Name, wishes); err != nil {
		a.log.Warn("settings of GPUs are as they were", "peer", peer.Name, "error", err)
		return err
	}
	a.log.Info("settings of GPUs were changed", "peer", peer.Name, "settings", len(wishes))
	return nil
}

func (a *Agent) acknowledge(values []target.Value) error {
	for _, v := range values {
		n, err := number(v.Value)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "%s: %v", v.Path, err)
		}
		if err := a.journal.Acknowledge(n); err != nil {
			return err
		}
	}
	select {
	case a.acked <- struct{}{}:
	default:
	}
	return nil
}

// wish reads a setting of a GPU.
func wish(v target.Value) (w nvml.Wish, err error) {
	path, err := target.ParsePath(v.Path)
	if err != nil {
		return w, status.Errorf(codes.InvalidArgument, "%v", err)
	}
	e := path.GetElem()
	if len(e) != 4 || e[0].GetName() != "gpus" || e[1].GetName() != "gpu" || e[2].GetName() != "config" {
		return w, status.Errorf(codes.PermissionDenied, "path %s cannot be set", v.Path)
	}
	number, ok := strings.CutPrefix(e[1].GetKey()["name"], "gpu")
	n, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil {
		return w, status.Errorf(codes.InvalidArgument, "path %s names no GPU, as gpu[name=gpu3]", v.Path)
	}
	value, err := word(v.Value)
	if err != nil {
		return w, status.Errorf(codes.InvalidArgument, "%s: %v", v.Path, err)
	}
	return nvml.Wish{GPU: uint32(n), Leaf: e[3].GetName(), Value: value}, nil
}

// word reads a value of any encoding, as YANG writes it.
func word(v *gpb.TypedValue) (string, error) {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_StringVal:
		return x.StringVal, nil
	case *gpb.TypedValue_BoolVal:
		return strconv.FormatBool(x.BoolVal), nil
	case *gpb.TypedValue_UintVal:
		return strconv.FormatUint(x.UintVal, 10), nil
	case *gpb.TypedValue_IntVal:
		return strconv.FormatInt(x.IntVal, 10), nil
	case *gpb.TypedValue_DoubleVal:
		return strconv.FormatFloat(x.DoubleVal, 'f', -1, 64), nil
	case *gpb.TypedValue_JsonVal:
		return bare(x.JsonVal), nil
	case *gpb.TypedValue_JsonIetfVal:
		return bare(x.JsonIetfVal), nil
	case *gpb.TypedValue_AsciiVal:
		return bare([]byte(x.AsciiVal)), nil
	}
	return "", errors.New("a number, a truth or a text is wanted")
}

// bare takes the quotes of a JSON string away.
func bare(b []byte) string { return strings.Trim(strings.TrimSpace(string(b)), `"`) }

// number reads a number of any encoding.
func number(v *gpb.TypedValue) (uint64, error) {
	text, err := word(v)
	if err != nil {
		return 0, errors.New("a number is wanted")
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number from 0 on", text)
	}
	return n, nil
}
