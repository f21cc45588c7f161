package bmc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// update is the remediator of update_firmware: an image whose digest is known, installed by the controller,
// until the component has the version that was asked for.
type update struct {
	hand
	images images

	seen notes[installing]
}

// installing is what is known of a step.
type installing struct {
	task  string    // its path
	ended time.Time // since when the task is read as ended
}

const (
	// maxImage bounds an image, in bytes.
	maxImage = 4 << 30
	// shows is how long a component may take to show its version after the task has ended: many
	// controllers start anew for it.
	shows = 10 * time.Minute
)

// images are where firmware may come from.
type images struct {
	from []string // beginnings of URLs
	time time.Duration
}

// allows says what speaks against an image.
func (i images) allows(image string) error {
	u, err := url.Parse(image)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("image: want http://HOST/PATH or https://HOST/PATH, without a user")
	}
	if len(i.from) == 0 {
		return errors.New("control.bmc.images names no place that images may come from")
	}
	for _, from := range i.from {
		a, err := url.Parse(from)
		if err == nil && a.Scheme == u.Scheme && a.Host == u.Host && strings.HasPrefix(path.Clean("/"+u.Path)+"/", strings.TrimRight(path.Clean("/"+a.Path), "/")+"/") {
			return nil
		}
	}
	return errors.New("image: it is at none of the places that control.bmc.images names")
}

// fetch reads an image into a file that is gone when it is closed, and holds it against its digest.
func (i images) fetch(ctx context.Context, image, digest string) (f *os.File, size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, i.time)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, image, http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	client := http.Client{CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 3 {
			return errors.New("it is redirected too often")
		}
		return i.allows(r.URL.String())
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("read the image: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("read the image: HTTP status %d", resp.StatusCode)
	}
	if f, err = os.CreateTemp("", "auspex-firmware-"); err != nil {
		return nil, 0, fmt.Errorf("keep the image: %w", err)
	}
	_ = os.Remove(f.Name())
	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(resp.Body, maxImage+1))
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case err != nil:
		err = fmt.Errorf("read the image: %w", err)
	case size > maxImage:
		err = fmt.Errorf("the image is larger than %d bytes", int64(maxImage))
	case !strings.EqualFold(got, digest):
		err = fmt.Errorf("the image has the SHA-256 digest %s, not %s", got, strings.ToLower(digest))
	default:
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// Lasts implements control.Lasting: an image is read, and may be sent.
func (u *update) Lasts() time.Duration { return u.images.time }

// way chooses how an image reaches the controller.
func way(w *redfish.Ways, image string) (push bool, err error) {
	scheme, _, _ := strings.Cut(image, "://")
	switch {
	case w.Fetches(scheme):
		return false, nil
	case w.Push != "":
		return true, nil
	}
	return false, fmt.Errorf("%w: the BMC takes no image by SimpleUpdate over %s, and none that is pushed", control.ErrCannot, scheme)
}

// installable reads what an image is for, and how it gets there.
func (u *update) installable(ctx context.Context, s control.Step, api *redfish.Client) (c redfish.Component, w redfish.Ways, push bool, err error) {
	if c, err = api.Component(ctx, s.With[policy.Component]); err != nil {
		return c, w, false, cannot(err)
	}
	if c.Fixed {
		return c, w, false, fmt.Errorf("%w: the BMC of %s says that %s cannot be updated", control.ErrCannot, s.Server, c.Name)
	}
	if w, err = api.Ways(ctx); err != nil {
		return c, w, false, cannot(err)
	}
	push, err = way(&w, s.With[policy.Image])
	return c, w, push, err
}

// Plan implements control.Remediator.
func (u *update) Plan(ctx context.Context, s control.Step) (sentence schemas.Sentence, err error) {
	if err := u.images.allows(s.With[policy.Image]); err != nil {
		return sentence, fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	err = u.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		part, _, _, err := u.installable(ctx, s, api)
		sentence = messages.New(messages.WouldUpdate, messages.Args{
			"server": s.Server, "component": part.Name, "version": s.With[policy.Version], "now": part.Version,
		})
		return err
	})
	return sentence, err
}

// Apply implements control.Remediator.
func (u *update) Apply(ctx context.Context, s control.Step) error {
	image := s.With[policy.Image]
	if err := u.images.allows(image); err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	f, size, err := u.images.fetch(ctx, image, s.With[policy.Digest])
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	defer func() { _ = f.Close() }()
	return u.do(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		part, w, push, err := u.installable(ctx, s, api)
		if err != nil {
			return fmt.Errorf("%w: %w", control.ErrRejected, err)
		}
		if part.Version == s.With[policy.Version] {
			return fmt.Errorf("%s of %s has version %s: %w", part.Name, s.Server, part.Version, control.ErrAlready)
		}
		if other, runs, err := api.Updating(ctx); err != nil {
			return fmt.Errorf("%w: %w", control.ErrRejected, err)
		} else if runs {
			return fmt.Errorf("%w: another update is under way: %s", control.ErrRejected, other.ID)
		}
		var task string
		if push {
			task, err = api.Push(ctx, &w, f, size, path.Base(image), part.Target, s.ID)
		} else {
			task, err = api.SimpleUpdate(ctx, &w, image, part.Target, s.ID)
		}
		if err == nil {
			u.seen.about(s.ID).task = task
			return nil
		}
		if !bmc.Rejected(err) || errors.Is(err, redfish.ErrBefore) {
			return refusal(err)
		}
		// It says no; whether it does it all the same, its tasks show.
		switch t, runs, look := api.Updating(ctx); {
		case look != nil:
			return fmt.Errorf("%w; then it did not answer: %w", errors.New(err.Error()), look)
		case runs:
			u.seen.about(s.ID).task = t.ID
			return nil
		}
		return refusal(err)
	})
}

// Settled implements control.Settler.
func (u *update) Settled(ctx context.Context, s control.Step) (so bool, how schemas.Sentence, err error) {
	err = u.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		part, err := api.Component(ctx, s.With[policy.Component])
		if err != nil {
			return err
		}
		_, runs, err := api.Updating(ctx)
		so, how = part.Version == s.With[policy.Version] && !runs, versionIs(s, part)
		return err
	})
	return so, how, err
}

func versionIs(s control.Step, part redfish.Component) schemas.Sentence {
	return messages.New(messages.VersionIs, messages.Args{"server": s.Server, "component": part.Name, "version": part.Version})
}

// Verify implements control.Remediator. The version decides; the task says how long to wait for it, and why
// it does not come.
func (u *update) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	err = u.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		of := u.seen.about(s.ID)
		t, runs, err := under(ctx, api, of)
		if err != nil {
			return err
		}
		part, err := api.Component(ctx, s.With[policy.Component])
		if err != nil {
			return err
		}
		args := messages.Args{
			"server": s.Server, "component": part.Name, "version": part.Version, "phase": t.State, "percent": t.Percent, "words": strings.Join(t.Messages, " "),
		}
		switch {
		case runs:
			id := messages.UpdateAt
			if t.Percent < 0 {
				id = messages.UpdateRuns
			}
			observed = messages.New(id, args)
		case part.Version == s.With[policy.Version]:
			v, observed = control.Verified, versionIs(s, part)
			u.seen.forget(s.ID)
		case t.State != "" && t.State != "Completed":
			v, observed = control.Failed, messages.New(messages.UpdateFailed, args)
			u.seen.forget(s.ID)
		case t.State == "Completed":
			if of.ended.IsZero() {
				of.ended = time.Now()
			}
			observed = messages.New(messages.UpdateUnshown, args)
			if time.Since(of.ended) > shows {
				v = control.Failed
				u.seen.forget(s.ID)
			}
		default:
			observed = messages.New(messages.UpdateForgotten, args)
		}
		return nil
	})
	return v, observed, err
}

// under reads the task of a step; one that the controller has forgotten, or that we have, may be
// another that is under way now. The zero task is none.
func under(ctx context.Context, api *redfish.Client, of *installing) (t redfish.Task, runs bool, err error) {
	if of.task != "" {
		t, err = api.Task(ctx, of.task)
		if err == nil {
			return t, !t.Ended(), nil
		} else if !errors.Is(err, redfish.ErrNotFound) {
			return t, false, err
		}
	}
	return api.Updating(ctx)
}

// Updating implements control.Updater.
func (u *update) Updating(ctx context.Context, server string) (what string, err error) {
	err = u.read(ctx, server, func(c controller) error {
		api, err := c.redfish(control.Step{Kind: "update_firmware", Server: server})
		if err != nil {
			return err
		}
		t, runs, err := api.Updating(ctx)
		if runs {
			what = t.ID
		}
		return err
	})
	return what, err
}
