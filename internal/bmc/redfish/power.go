package redfish

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
)

// PowerLimit is what a server draws and may draw, in watts.
type PowerLimit struct {
	Draw     float64 // NaN where the service does not say
	Limit    float64 // 0 is none
	Min, Max float64 // of a limit; 0 where the service does not say
	Settable bool    // the service shows a place for a limit

	path  string // of what a limit is written to
	index int    // in its PowerControl; -1 for PowerLimitWatts
	etag  string
	mode  string // of PowerLimitWatts; "" where it shows none
}

// PowerLimit reads what the chassis of the system draws, and its limit: PowerLimitWatts of its EnvironmentMetrics (DSP2046,
// EnvironmentMetrics v1.2), else PowerControl/PowerLimit of its Power (Power v1.0).
func (c *Client) PowerLimit(ctx context.Context) (PowerLimit, error) {
	out := PowerLimit{Draw: math.NaN()}
	s, err := c.System(ctx)
	if err != nil {
		return out, err
	}
	for _, l := range s.Object("Links").Objects("Chassis") {
		chassis, err := c.Get(ctx, l.ID())
		if err != nil {
			return out, fmt.Errorf("read the chassis of %s: %w", s.ID(), err)
		}
		for _, way := range []struct {
			link string
			read func(Object) PowerLimit
		}{{"EnvironmentMetrics", environment}, {"Power", powerControl}} {
			path := chassis.Link(way.link)
			if path == "" {
				continue
			}
			doc, err := c.Get(ctx, path)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return out, fmt.Errorf("read the power of %s: %w", s.ID(), err)
			}
			one := way.read(doc)
			draw := out.Draw
			if math.IsNaN(draw) {
				draw = one.Draw
			}
			if one.Settable && !out.Settable {
				out, out.path, out.etag = one, path, doc.String("@odata.etag")
			}
			out.Draw = draw
		}
	}
	return out, nil
}

// environment reads an EnvironmentMetrics.
func environment(o Object) PowerLimit {
	out := PowerLimit{Draw: math.NaN(), index: -1}
	if w, ok := o.Object("PowerWatts").Number("Reading"); ok {
		out.Draw = w
	}
	set, ok := o["PowerLimitWatts"].(map[string]any)
	if !ok {
		return out
	}
	limit := Object(set)
	out.Settable, out.mode = true, limit.String("ControlMode")
	if w, ok := limit.Number("SetPoint"); ok && out.mode != "Disabled" {
		out.Limit = w
	}
	out.Min, _ = limit.Number("AllowableMin")
	out.Max, _ = limit.Number("AllowableMax")
	return out
}

// powerControl reads the first PowerControl of a Power that tells of a server as a whole: a member of a limit, or of what is drawn.
func powerControl(o Object) PowerLimit {
	out := PowerLimit{Draw: math.NaN()}
	for i, m := range o.Objects("PowerControl") {
		if w, ok := m.Number("PowerConsumedWatts"); ok && math.IsNaN(out.Draw) {
			out.Draw = w
		}
		limit, ok := m["PowerLimit"].(map[string]any)
		if !ok || out.Settable {
			continue
		}
		out.Settable, out.index = true, i
		if w, ok := Object(limit).Number("LimitInWatts"); ok {
			out.Limit = w
		}
	}
	return out
}

// SetPowerLimit writes a limit where it was read, in whole watts; 0 takes it away.
func (c *Client) SetPowerLimit(ctx context.Context, at PowerLimit, watts float64, requestID string) error {
	if !at.Settable {
		return fmt.Errorf("%w: a power limit", ErrNotFound)
	}
	var value any
	if watts > 0 {
		value = math.Round(watts)
	}
	var body map[string]any
	if at.index < 0 {
		limit := map[string]any{"SetPoint": value}
		switch {
		case at.mode == "":
		case watts <= 0:
			limit = map[string]any{"ControlMode": "Disabled"} // what it is set to then matters no more
		case at.mode == "Disabled":
			limit["ControlMode"] = "Automatic"
		}
		body = map[string]any{"PowerLimitWatts": limit}
	} else {
		// Members that are empty stay as they are (DSP0266, "PATCH on array properties").
		members := make([]any, at.index+1)
		for i := range members {
			members[i] = map[string]any{}
		}
		members[at.index] = map[string]any{"PowerLimit": map[string]any{"LimitInWatts": value}}
		body = map[string]any{"PowerControl": members}
	}
	header := http.Header{}
	if requestID != "" {
		header.Set("X-Request-Id", requestID)
	}
	_, _, err := c.do(ctx, http.MethodPatch, at.path, body, header)
	var st *StatusError
	if errors.As(err, &st) && st.Status == http.StatusPreconditionRequired && at.etag != "" {
		header.Set("If-Match", at.etag)
		_, _, err = c.do(ctx, http.MethodPatch, at.path, body, header)
	}
	return err
}
