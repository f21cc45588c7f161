package api

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/configs"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// How what is desired stands to what is in force.
const (
	configStored  = "stored"   // nobody reads what is in force
	configInForce = "in_force" // all of it is read, and is so
	configDiffers = "differs"
	configUnknown = "unknown" // not all of it is read now
)

// before is the version that a list goes on from; 0 is its beginning.
func before(after string) (int64, error) {
	if after == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(after, 10, 64)
	if err != nil || n < 1 {
		return 0, errCursor
	}
	return n, nil
}

// keeping is what control has made of a configuration, or nil.
func (s *Server) keeping(ctx context.Context, e *holdings, subject string) (*apigen.ConfigKeeping, error) {
	st, known, err := e.configs.State(ctx, subject)
	if err != nil || !known {
		return nil, err
	}
	out := &apigen.ConfigKeeping{
		State: st.State, Detail: st.Reason, Sentence: st.Sentence, Version: st.Version, AppliedVersion: st.Applied, AppliedAt: st.AppliedAt,
		OperationID: st.Operation, Attempts: len(st.Tries), Found: st.Found, Coming: st.Coming, ReadAt: st.ReadAt, Unread: st.Unread,
		Drifts: []apigen.ConfigDrift{},
	}
	if st.Next.After(time.Now()) && st.State != schemas.ConfigInForce {
		out.NextAttemptAt = st.Next
	}
	for _, of := range []*map[string]string{&out.Found, &out.Coming} {
		if *of == nil {
			*of = map[string]string{}
		}
	}
	for _, d := range st.Drifts {
		if d.Gone.IsZero() {
			out.Drifts = append(out.Drifts, apigen.ConfigDrift{Field: configs.FieldOf(st.Kind, d.Setting), Setting: d.Setting, Desired: d.Desired, Found: d.Found, Since: d.Since})
		}
	}
	return out, nil
}

// inType is a setting in the type of what it is held against.
func inType(text string, like any) any {
	switch like.(type) {
	case bool:
		if v, err := strconv.ParseBool(text); err == nil {
			return v
		}
	case float64:
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return v
		}
	}
	return text
}

func serverConfig(c *schemas.ServerConfig) apigen.ServerConfig {
	return apigen.ServerConfig{
		ID: c.ID, ServerID: c.ServerID, Server: c.Server, Version: c.Version, BiosConfig: c.BIOS, RaidConfig: c.RAID, NetworkConfig: c.Network,
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt, State: configStored, Differences: []apigen.ConfigDifference{},
		AppliedReason: "control has not read the settings of the BIOS, and nobody reads those of RAID and network",
	}
}

// lookBack is how many of the last actions on a server are searched for what control read of its BIOS.
const lookBack = 100

// readBIOS is what control read of the BIOS of a server when it last set attributes, each as it was read
// last, and when the last of them was.
func (s *Server) readBIOS(ctx context.Context, server string) (is map[string]any, at time.Time, err error) {
	if s.deps.Records == nil {
		return nil, at, nil
	}
	all, _, err := s.deps.Records.Actions(ctx, records.Filter{Server: server, Limit: lookBack})
	if err != nil {
		return nil, at, err
	}
	for i := range all {
		a := &all[i]
		if a.Kind != "set_bios" {
			continue
		}
		read := inForce(a.VerifiedSentence)
		if read == nil {
			read = inForce(a.DetailSentence)
		}
		if read == nil {
			continue
		}
		if is == nil {
			is, at = map[string]any{}, a.Time
		}
		for name, v := range read {
			if _, later := is[name]; !later {
				is[name] = v
			}
		}
	}
	return is, at, nil
}

// inForce are the attributes that a sentence of control tells to be in force, or a sentence in it.
func inForce(s *schemas.Sentence) map[string]any {
	if s == nil {
		return nil
	}
	args := s.Args
	if inner, ok := args["saw"].(map[string]any); ok {
		args, _ = inner["args"].(map[string]any)
	}
	is, _ := args["in_force"].(map[string]any)
	return is
}

// serverConfigNow is the latest configuration of a server, with what is in force.
func (s *Server) serverConfigNow(ctx context.Context, e *holdings, c *schemas.ServerConfig) (apigen.ServerConfig, error) {
	out := serverConfig(c)
	kept, err := s.keeping(ctx, e, c.ServerID)
	if err != nil {
		return out, err
	}
	out.Keeping = kept
	is, at, err := s.readBIOS(ctx, c.Server)
	if kept != nil && !kept.ReadAt.IsZero() && kept.Version == c.Version && !at.After(kept.ReadAt) {
		is, at = map[string]any{}, kept.ReadAt
		for name, text := range kept.Found {
			is[name] = inType(text, c.BIOS[name])
		}
	}
	if err != nil || is == nil {
		return out, err
	}
	out.Applied = is
	reasons := []string{"as control read it at " + at.UTC().Format(time.RFC3339)}
	unread := len(c.RAID)+len(c.Network) > 0
	if unread {
		reasons = append(reasons, "nobody reads the settings of RAID and network")
	}
	for _, name := range slices.Sorted(maps.Keys(c.BIOS)) {
		switch v, ok := is[name]; {
		case !ok:
			unread = true
			reasons = append(reasons, name+" was not read")
		case fmt.Sprint(v) != fmt.Sprint(c.BIOS[name]):
			out.Differences = append(out.Differences, apigen.ConfigDifference{Field: "bios_config." + name, Desired: c.BIOS[name], Applied: v})
		}
	}
	out.AppliedReason = strings.Join(reasons, "; ")
	switch {
	case len(out.Differences) > 0:
		out.State = configDiffers
	case unread:
		out.State = configUnknown
	default:
		out.State = configInForce
	}
	return out, nil
}

// GetServerConfig implements the operation getServerConfig.
func (s *Server) GetServerConfig(ctx context.Context, r apigen.GetServerConfigRequestObject) (apigen.GetServerConfigResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	c, err := e.configs.Server(ctx, v.ID)
	if err != nil {
		return nil, refused(err, "configuration of server", v.Name)
	}
	now, err := s.serverConfigNow(ctx, e, &c)
	if err != nil {
		return nil, err
	}
	return apigen.GetServerConfig200JSONResponse{Body: now, Headers: apigen.GetServerConfig200ResponseHeaders{ETag: etag(c.Version)}}, nil
}

// PutServerConfig implements the operation putServerConfig.
func (s *Server) PutServerConfig(ctx context.Context, r apigen.PutServerConfigRequestObject) (apigen.PutServerConfigResponseObject, error) {
	e, err := s.keeper(ctx)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err == nil {
		err = s.mayOn(ctx, access.Inventory, v.ID)
	}
	if err != nil {
		return nil, err
	}
	b := r.Body
	c, err := e.configs.PutServer(ctx, Caller(ctx).Name, v.ID, of, func(c *schemas.ServerConfig) {
		for from, to := range map[*map[string]any]*map[string]any{&b.BiosConfig: &c.BIOS, &b.RaidConfig: &c.RAID, &b.NetworkConfig: &c.Network} {
			if *from != nil {
				*to = *from
			}
		}
	})
	if err != nil {
		return nil, refused(err, "server", r.ID)
	}
	s.noted(ctx, "configuration of a server stored", v.Name)
	now, err := s.serverConfigNow(ctx, e, &c)
	if err != nil {
		return nil, err
	}
	return apigen.PutServerConfig200JSONResponse{Body: now, Headers: apigen.PutServerConfig200ResponseHeaders{ETag: etag(c.Version)}}, nil
}

// ListServerConfigs implements the operation listServerConfigs.
func (s *Server) ListServerConfigs(ctx context.Context, r apigen.ListServerConfigsRequestObject) (apigen.ListServerConfigsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	from, err := before(r.Params.After)
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	n := pageSize(r.Params.Limit)
	found, err := e.configs.Servers(ctx, v.ID, from, n+1)
	if err != nil {
		return nil, err
	}
	out := apigen.ListServerConfigs200JSONResponse{Items: make([]apigen.ServerConfig, min(n, len(found)))}
	for i := range out.Items {
		out.Items[i] = serverConfig(&found[i])
		out.Items[i].AppliedReason = "a later version has replaced it"
	}
	if from == 0 && len(found) > 0 {
		if out.Items[0], err = s.serverConfigNow(ctx, e, &found[0]); err != nil {
			return nil, err
		}
	}
	if len(found) > n {
		out.Next = strconv.FormatInt(found[n-1].Version, 10)
	}
	return out, nil
}

// limitQuery asks for the power limit of a GPU: the one that was set, where an agent tells it,
// else the one in force as exporters tell it.
const limitQuery = `max(last_over_time(auspex_gpu_power_limit_watts{resource=%q}[15m])) or max(last_over_time(%s{resource=%q,bound=%q}[15m]))`

// applied is what of a GPU's configuration is in force, as the hot window has it, and why that
// is not known.
func (s *Server) applied(ctx context.Context, gpu string) (*apigen.GPUReadings, string) {
	if s.deps.Querier == nil {
		return nil, "this console has no hot window to read it in"
	}
	found, err := s.deps.Querier.Instant(ctx, fmt.Sprintf(limitQuery, gpu, schemas.ThresholdMetric("DCGM_FI_DEV_POWER_USAGE"), gpu, schemas.RangeMax), time.Now())
	if err != nil {
		s.log.Warn("cannot read the power limit", "gpu", gpu, "error", err)
		return nil, "the hot window does not answer"
	}
	if len(found) == 1 && len(found[0].Points) == 1 {
		if v := number(found[0].Points[0].V); v != nil {
			return &apigen.GPUReadings{PowerLimit: v}, ""
		}
	}
	return nil, "no collector has told the power limit of late"
}

// watt is how far apart two power limits are that are the same one.
const watt = .5

// driverNames are settings of driver_config, by their parameters of control.
var driverNames = []string{"ecc", "mig", "persistence"}

// gpuConfig holds what is desired of a GPU against what is in force: what collectors read, and what control
// has read of the rest.
func gpuConfig(c *schemas.GPUConfig, is *apigen.GPUReadings, reason string, kept *apigen.ConfigKeeping) apigen.GPUConfig {
	out := apigen.GPUConfig{
		ID: c.ID, GpuID: c.GPUID, Gpu: c.GPU, Version: c.Version, PowerLimit: c.PowerLimit, MemoryClock: c.MemoryClock, DriverConfig: c.Driver,
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt, State: configStored, Applied: is, Differences: []apigen.ConfigDifference{}, Keeping: kept,
	}
	var found map[string]string
	if kept != nil && kept.Version == c.Version {
		found = kept.Found
	}
	read := false
	hold := func(field string, desired, is any) {
		if read = true; desired != is {
			out.Differences = append(out.Differences, apigen.ConfigDifference{Field: field, Desired: desired, Applied: is})
		}
	}
	var unread []string // why
	if c.PowerLimit != nil {
		switch {
		case is == nil || is.PowerLimit == nil:
			unread = append(unread, reason)
		case math.Abs(*is.PowerLimit-*c.PowerLimit) > watt:
			out.Differences = append(out.Differences, apigen.ConfigDifference{Field: "power_limit", Desired: *c.PowerLimit, Applied: *is.PowerLimit})
		default:
			read = true
		}
	}
	left := maps.Clone(c.Driver)
	if c.MemoryClock != nil {
		memory, sm, told := strings.Cut(found["application_clocks"], ",")
		m, err1 := strconv.ParseInt(memory, 10, 64)
		clock, err2 := strconv.ParseFloat(sm, 64)
		if told && err1 == nil && err2 == nil {
			if out.Applied == nil {
				out.Applied = &apigen.GPUReadings{}
			}
			out.Applied.MemoryClock = &m
			hold("memory_clock", *c.MemoryClock, m)
			if want, ok := left["sm_clock"].(float64); ok {
				hold("driver_config.sm_clock", want, clock)
				delete(left, "sm_clock")
			}
		} else {
			unread = append(unread, "nobody tells which clock of the memory was set, only the one of the moment")
		}
	}
	for _, name := range driverNames {
		if v, err := strconv.ParseBool(found[name]); err == nil && left[name] != nil {
			hold("driver_config."+name, left[name], any(v))
			delete(left, name)
		}
	}
	if len(left) > 0 {
		unread = append(unread, "no collector reads settings of the driver")
	}
	out.AppliedReason = strings.Join(unread, "; ")
	switch {
	case len(out.Differences) > 0:
		out.State = configDiffers
	case len(unread) > 0 && (c.PowerLimit != nil || read):
		out.State = configUnknown
	case read:
		out.State = configInForce
	}
	return out
}

// gpuConfigNow is the latest configuration of a GPU, with what is in force.
func (s *Server) gpuConfigNow(ctx context.Context, e *holdings, c *schemas.GPUConfig) (apigen.GPUConfig, error) {
	is, reason := s.applied(ctx, c.GPU)
	kept, err := s.keeping(ctx, e, c.GPUID)
	if err == nil && kept != nil && kept.Version == c.Version { // control reads the board, collectors a while ago
		if w, err := strconv.ParseFloat(kept.Found["power_limit"], 64); err == nil {
			is = &apigen.GPUReadings{PowerLimit: &w}
		}
	}
	return gpuConfig(c, is, reason, kept), err
}

// GetGPUConfig implements the operation getGPUConfig.
func (s *Server) GetGPUConfig(ctx context.Context, r apigen.GetGPUConfigRequestObject) (apigen.GetGPUConfigResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	g, err := s.gpu(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	c, err := e.configs.GPU(ctx, g.ID)
	if err != nil {
		return nil, refused(err, "configuration of GPU", g.Name)
	}
	now, err := s.gpuConfigNow(ctx, e, &c)
	if err != nil {
		return nil, err
	}
	return apigen.GetGPUConfig200JSONResponse{Body: now, Headers: apigen.GetGPUConfig200ResponseHeaders{ETag: etag(c.Version)}}, nil
}

// putGPUConfig makes the next version of a GPU, of the latest or of nothing.
func (s *Server) putGPUConfig(ctx context.Context, ref, tag string, b *apigen.NewGPUConfig, anew bool) (out apigen.GPUConfig, version string, err error) {
	e, err := s.keeper(ctx)
	if err != nil {
		return out, "", err
	}
	of, err := revision(tag)
	if err != nil {
		return out, "", err
	}
	g, err := s.gpu(ctx, ref)
	if err == nil {
		err = s.mayOn(ctx, access.Inventory, g.ServerID)
	}
	if err != nil {
		return out, "", err
	}
	c, err := e.configs.PutGPU(ctx, Caller(ctx).Name, g.ID, of, func(c *schemas.GPUConfig) {
		if anew {
			// The zero id makes another version of what is said once more.
			c.ID, c.PowerLimit, c.MemoryClock, c.Driver = "", nil, nil, nil
		}
		if b.PowerLimit != nil {
			c.PowerLimit = b.PowerLimit
		}
		if b.MemoryClock != nil {
			c.MemoryClock = b.MemoryClock
		}
		if b.DriverConfig != nil {
			c.Driver = b.DriverConfig
		}
	})
	if err != nil {
		return out, "", refused(err, "GPU", ref)
	}
	s.noted(ctx, "configuration of a GPU stored", g.Name)
	out, err = s.gpuConfigNow(ctx, e, &c)
	return out, etag(c.Version), err
}

// CreateGPUConfig implements the operation createGPUConfig.
func (s *Server) CreateGPUConfig(ctx context.Context, r apigen.CreateGPUConfigRequestObject) (apigen.CreateGPUConfigResponseObject, error) {
	c, tag, err := s.putGPUConfig(ctx, r.ID, r.Params.IfMatch, r.Body, true)
	if err != nil {
		return nil, err
	}
	return apigen.CreateGPUConfig201JSONResponse{Body: c, Headers: apigen.CreateGPUConfig201ResponseHeaders{ETag: tag}}, nil
}

// UpdateGPUConfig implements the operation updateGPUConfig.
func (s *Server) UpdateGPUConfig(ctx context.Context, r apigen.UpdateGPUConfigRequestObject) (apigen.UpdateGPUConfigResponseObject, error) {
	c, tag, err := s.putGPUConfig(ctx, r.ID, r.Params.IfMatch, r.Body, false)
	if err != nil {
		return nil, err
	}
	return apigen.UpdateGPUConfig200JSONResponse{Body: c, Headers: apigen.UpdateGPUConfig200ResponseHeaders{ETag: tag}}, nil
}

// ListGPUConfigs implements the operation listGPUConfigs.
func (s *Server) ListGPUConfigs(ctx context.Context, r apigen.ListGPUConfigsRequestObject) (apigen.ListGPUConfigsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	from, err := before(r.Params.After)
	if err != nil {
		return nil, err
	}
	g, err := s.gpu(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	n := pageSize(r.Params.Limit)
	found, err := e.configs.GPUs(ctx, g.ID, from, n+1)
	if err != nil {
		return nil, err
	}
	out := apigen.ListGPUConfigs200JSONResponse{Items: make([]apigen.GPUConfig, min(n, len(found)))}
	for i := range out.Items {
		out.Items[i] = gpuConfig(&found[i], nil, "", nil)
		out.Items[i].State, out.Items[i].AppliedReason = configStored, "a later version has replaced it"
	}
	if from == 0 && len(found) > 0 {
		if out.Items[0], err = s.gpuConfigNow(ctx, e, &found[0]); err != nil {
			return nil, err
		}
	}
	if len(found) > n {
		out.Next = strconv.FormatInt(found[n-1].Version, 10)
	}
	return out, nil
}
