package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// System finds the computer system that can be reset. A controller may show more than one: a
// baseboard of accelerators is often a system without a reset.
func (c *Client) System(ctx context.Context) (Object, error) {
	best, _, err := c.Systems(ctx)
	return best, err
}

// Systems reads all computer systems; the first of the results is the one of [Client.System].
func (c *Client) Systems(ctx context.Context) (best Object, all []Object, err error) {
	root, err := c.Root(ctx)
	if err != nil {
		return nil, nil, err
	}
	all, _, err = c.Members(ctx, orDefault(root.Link("Systems"), "/redfish/v1/Systems"))
	if err != nil {
		return nil, nil, fmt.Errorf("list systems of %s: %w", c.base.Host, err)
	}
	score := 0
	for _, s := range all {
		n := 5
		if IsBaseboard(s) { // some can be reset, too
			n -= 4
		}
		if Resets(s) {
			n += 4
		}
		if s.String("PowerState") != "" {
			n += 2
		}
		if s.String("SystemType") == "Physical" {
			n++
		}
		if n > score {
			best, score = s, n
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("%w: %s has no computer system", ErrNotFound, c.base.Host)
	}
	return best, all, nil
}

// IsBaseboard reports whether a system is a board of accelerators, which OpenBMC shows as a system
// beside the computer.
func IsBaseboard(s Object) bool {
	return strings.Contains(strings.ToLower(s.ID()[strings.LastIndexByte(s.ID(), '/')+1:]), "baseboard")
}

// Resets reports whether a system can be reset.
func Resets(s Object) bool {
	return s.Object("Actions").Object("#ComputerSystem.Reset").String("target") != ""
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// PowerState reads the power state as Redfish names it: On, Off, PoweringOn,
// PoweringOff or Paused.
func (c *Client) PowerState(ctx context.Context) (string, error) {
	s, err := c.System(ctx)
	if err != nil {
		return "", err
	}
	state := s.String("PowerState")
	if state == "" {
		return "", fmt.Errorf("%w: %s has no PowerState", ErrProtocol, s.ID())
	}
	return state, nil
}

// LastReset reads when the system was last reset (DSP2046, ComputerSystem,
// LastResetTime) and the controller's clock; ok is false where either is missing.
func (c *Client) LastReset(ctx context.Context) (t, now time.Time, ok bool, err error) {
	s, err := c.System(ctx)
	if err != nil {
		return t, now, false, err
	}
	if t, ok = s.Time("LastResetTime"); !ok {
		return t, now, false, nil
	}
	managers := s.Object("Links").Objects("ManagedBy")
	if len(managers) == 0 {
		return t, now, false, nil
	}
	m, err := c.Get(ctx, managers[0].ID())
	if err != nil {
		return t, now, false, fmt.Errorf("read the clock of %s: %w", c.base.Host, err)
	}
	now, ok = m.Time("DateTime")
	return t, now, ok, nil
}

// Reset posts ComputerSystem.Reset, once, and returns when the service has
// accepted it; that says nothing about whether it happens. The request id goes
// into the header X-Request-Id.
func (c *Client) Reset(ctx context.Context, kind, requestID string) error {
	s, err := c.System(ctx)
	if err != nil {
		return err
	}
	action := s.Object("Actions").Object("#ComputerSystem.Reset")
	target := action.String("target")
	if target == "" {
		return fmt.Errorf("%w: %s has no reset action", ErrNotFound, s.ID())
	}
	allowed := action.Strings("ResetType@Redfish.AllowableValues")
	if info := action.String("@Redfish.ActionInfo"); len(allowed) == 0 && info != "" {
		if o, err := c.Get(ctx, info); err == nil {
			for _, p := range o.Objects("Parameters") {
				if p.String("Name") == "ResetType" {
					allowed = p.Strings("AllowableValues")
				}
			}
		}
	}
	if len(allowed) > 0 && !slices.Contains(allowed, kind) {
		return fmt.Errorf("%w: reset %s is not one that %s allows: %v", ErrNotFound, kind, s.ID(), allowed)
	}
	return c.post(ctx, target, map[string]string{"ResetType": kind}, requestID)
}

// post never sends an action twice: the session is renewed before it, with a
// read, and not after a refusal.
func (c *Client) post(ctx context.Context, path string, body any, requestID string) error {
	if err := c.login(ctx); err != nil {
		return err
	}
	header := http.Header{}
	if requestID != "" {
		header.Set("X-Request-Id", requestID)
	}
	_, _, err := c.once(ctx, http.MethodPost, path, body, header)
	return err
}

// SetBoot sets the boot source override: enabled is Once, Continuous or
// Disabled; target is None, Pxe, Hdd, BiosSetup and so on; mode is UEFI, Legacy
// or "" for what is set.
func (c *Client) SetBoot(ctx context.Context, enabled, target, mode, requestID string) error {
	s, err := c.System(ctx)
	if err != nil {
		return err
	}
	boot := map[string]string{"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}
	if allowed := s.Object("Boot").Strings("BootSourceOverrideTarget@Redfish.AllowableValues"); len(allowed) > 0 && !slices.Contains(allowed, target) {
		if enabled != "Disabled" {
			return fmt.Errorf("%w: boot target %s is not one that %s allows: %v", ErrNotFound, target, s.ID(), allowed)
		}
		delete(boot, "BootSourceOverrideTarget")
	}
	if mode != "" {
		boot["BootSourceOverrideMode"] = mode
	}
	header := http.Header{}
	if requestID != "" {
		header.Set("X-Request-Id", requestID)
	}
	// Some services refuse a PATCH without the tag of what it changes.
	path := orDefault(s.Object("@Redfish.Settings").Link("SettingsObject"), s.ID())
	_, _, err = c.do(ctx, http.MethodPatch, path, map[string]any{"Boot": boot}, header)
	var st *StatusError
	if errors.As(err, &st) && path != s.ID() && (st.Status == http.StatusNotFound || st.Status == http.StatusMethodNotAllowed) {
		_, _, err = c.do(ctx, http.MethodPatch, s.ID(), map[string]any{"Boot": boot}, header)
	}
	if errors.As(err, &st) && st.Status == http.StatusPreconditionRequired {
		if tag := s.String("@odata.etag"); tag != "" {
			header.Set("If-Match", tag)
			_, _, err = c.do(ctx, http.MethodPatch, s.ID(), map[string]any{"Boot": boot}, header)
		}
	}
	return err
}

// Boot reads the boot source override. Where the service keeps what is to come in a settings
// resource (DSP0266, "Settings resource"), that is read: the system shows it after a restart.
func (c *Client) Boot(ctx context.Context) (enabled, target, mode string, err error) {
	s, err := c.System(ctx)
	if err != nil {
		return "", "", "", err
	}
	b := s.Object("Boot")
	if path := s.Object("@Redfish.Settings").Link("SettingsObject"); path != "" && path != s.ID() {
		pending, err := c.Get(ctx, path)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return "", "", "", fmt.Errorf("read what is to come of %s: %w", s.ID(), err)
		}
		if p := pending.Object("Boot"); p.String("BootSourceOverrideTarget") != "" {
			b = p
		}
	}
	return b.String("BootSourceOverrideEnabled"), b.String("BootSourceOverrideTarget"), b.String("BootSourceOverrideMode"), nil
}
