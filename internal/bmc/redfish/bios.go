package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stmcginnis/gofish/schemas"
)

// ErrAttribute says that a BIOS attribute cannot be set as it is asked for. Nothing was sent.
var ErrAttribute = errors.New("redfish: BIOS attribute")

// Bios is the BIOS of a system as its controller tells it (DSP2046, Bios).
type Bios struct {
	Attributes Object    // in force since the last start of the system
	Pending    Object    // of the settings resource: what a reset puts in force, or all that will be
	Applied    time.Time // when settings were last put in force, by the controller's clock; zero where it does not say
	Separate   bool      // there is a settings resource
	Messages   []string  // what the controller says of the settings that it last put in force

	path, settings string
	applyTimes     []string
	registry       string // its id
}

// Bios reads the BIOS of the system.
func (c *Client) Bios(ctx context.Context) (*Bios, error) {
	s, err := c.System(ctx)
	if err != nil {
		return nil, err
	}
	path := s.Link("Bios")
	if path == "" {
		return nil, fmt.Errorf("%w: %s shows no BIOS", ErrNotFound, s.ID())
	}
	o, err := c.Get(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read the BIOS of %s: %w", s.ID(), err)
	}
	set := o.Object("@Redfish.Settings")
	b := &Bios{
		Attributes: o.Object("Attributes"), path: path, settings: orDefault(set.Link("SettingsObject"), path),
		applyTimes: set.Strings("SupportedApplyTimes"), registry: o.String("AttributeRegistry"),
	}
	b.Applied, _ = set.Time("Time")
	for _, m := range set.Objects("Messages") {
		if text := m.String("Message"); text != "" {
			b.Messages = append(b.Messages, text)
		}
	}
	if b.Separate = b.settings != path; b.Separate {
		p, err := c.Get(ctx, b.settings)
		if err != nil {
			return nil, fmt.Errorf("read what is to come of %s: %w", path, err)
		}
		b.Pending = p.Object("Attributes")
	}
	return b, nil
}

// Differing names the attributes that are not as asked, with what they are, sorted.
func Differing(is Object, asked map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if v, ok := is[name]; !ok || !same(v, asked[name]) {
			names = append(names, name)
		}
	}
	return names
}

// same compares the value of an attribute with a text.
func same(v any, want string) bool {
	switch v := v.(type) {
	case bool:
		return strings.EqualFold(want, strconv.FormatBool(v))
	case float64:
		f, err := strconv.ParseFloat(want, 64)
		return err == nil && f == v
	case string:
		return v == want || (want == "true" || want == "false") && strings.EqualFold(v, want) // a truth that is told as a text
	}
	return false
}

// Word is the value of an attribute as a text; one that is not there is "nothing".
func Word(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return strconv.Quote(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// SetBios has attributes put in force at the next reset, once. They are checked first: against
// the registry where the service offers it, else against the type that they have.
func (c *Client) SetBios(ctx context.Context, asked map[string]string, requestID string) error {
	b, err := c.Bios(ctx)
	if err != nil {
		return before(err)
	}
	values, err := c.check(ctx, b, asked)
	if err != nil {
		return before(err)
	}
	api, t, err := c.typed(ctx, requestID)
	if err != nil {
		return before(err)
	}
	header := map[string]string{}
	resp, err := api.Get(b.settings)
	if err != nil {
		return before(fmt.Errorf("read %s: %w", b.settings, t.refusal(err)))
	}
	var o Object
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		return before(fmt.Errorf("%w: %s: %w", ErrProtocol, b.settings, err))
	}
	if tag := orDefault(resp.Header.Get("ETag"), o.String("@odata.etag")); tag != "" {
		header["If-Match"] = tag
	}
	doc := map[string]any{"Attributes": values}
	if slices.Contains(b.applyTimes, string(schemas.OnResetSettingsApplyTime)) {
		doc["@Redfish.SettingsApplyTime"] = map[string]string{"ApplyTime": string(schemas.OnResetSettingsApplyTime)}
	}
	// gofish's own Bios.UpdateBiosAttributes leaves out what is in force already, and so would not
	// take back what is pending.
	t.refused = nil
	resp, err = api.PatchWithHeaders(b.settings, doc, header)
	if err == nil {
		_ = resp.Body.Close()
	}
	var st *StatusError
	if err = t.refusal(err); errors.As(err, &st) && st.Status == http.StatusPreconditionFailed {
		return fmt.Errorf("somebody else changed %s at this moment: %w", b.settings, err)
	}
	return err
}

// Defaults are the attributes that can be set with what the registry has as their default, by the names of those that the BIOS has;
// [ErrAttribute] where the service tells none.
func (c *Client) Defaults(ctx context.Context, b *Bios) (map[string]string, error) {
	known, _, err := c.attributes(ctx, b.registry)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, a := range known {
		text, is := a["DefaultValue"].(string)
		if v := a["DefaultValue"]; v != nil && !is {
			text = Word(v)
		} else if v == nil {
			continue
		}
		if _, there := b.Attributes[name]; !there {
			continue
		}
		if _, err := typedValue(a, text); err == nil { // what can only be read, and passwords, stay
			out[name] = text
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w defaults: the controller's registry tells none; give the server a configuration with what it is to have", ErrAttribute)
	}
	return out, nil
}

// CheckBios says what speaks against attributes, and changes nothing.
func (c *Client) CheckBios(ctx context.Context, b *Bios, asked map[string]string) error {
	_, err := c.check(ctx, b, asked)
	return err
}

// check returns attributes with values of their types.
func (c *Client) check(ctx context.Context, b *Bios, asked map[string]string) (map[string]any, error) {
	known, offered, err := c.attributes(ctx, b.registry)
	if err != nil {
		return nil, err
	}
	values := make(map[string]any, len(asked))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		is, there := b.Attributes[name]
		var v any
		var why error
		switch a, ok := known[name]; {
		case ok:
			v, why = typedValue(a, asked[name])
		case offered:
			why = errors.New("the controller's registry does not know it")
		case !there:
			why = errors.New("the BIOS has no such attribute")
		default:
			v, why = alike(is, asked[name])
		}
		if why != nil {
			errs = append(errs, fmt.Errorf("%w %s: %w", ErrAttribute, name, why))
		}
		values[name] = v
	}
	return values, errors.Join(errs...)
}

// attributes reads the registry of attributes by its id (DSP0270, AttributeRegistry); offered is false
// where the service has none.
func (c *Client) attributes(ctx context.Context, id string) (known map[string]Object, offered bool, err error) {
	if id == "" {
		return nil, false, nil
	}
	root, err := c.Root(ctx)
	if err != nil {
		return nil, false, err
	}
	files, _, err := c.Members(ctx, orDefault(root.Link("Registries"), "/redfish/v1/Registries"))
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("list registries of %s: %w", c.base.Host, err)
	}
	path := ""
	for _, f := range files {
		if f.String("Id") != id && f.String("Registry") != id {
			continue
		}
		for _, l := range f.Objects("Location") {
			if uri := l.String("Uri"); uri != "" && (path == "" || strings.HasPrefix(l.String("Language"), "en")) {
				path = c.Canonical(uri)
			}
		}
	}
	if path == "" {
		return nil, false, nil
	}
	o, err := c.Get(ctx, path)
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("read the registry %s: %w", id, err)
	}
	known = map[string]Object{}
	for _, a := range o.Object("RegistryEntries").Objects("Attributes") {
		if name := a.String("AttributeName"); name != "" {
			known[name] = a
		}
	}
	return known, len(known) > 0, nil
}

// typedValue makes a text a value of an attribute, as the registry describes it.
func typedValue(a Object, text string) (any, error) {
	if a.Bool("ReadOnly") || a.Bool("Immutable") {
		return nil, errors.New("it can only be read")
	}
	bound := func(v float64, low, high, of string) error {
		if l, ok := a.Number(low); ok && v < l {
			return fmt.Errorf("%q is below the least %s, %g", text, of, l)
		}
		if h, ok := a.Number(high); ok && v > h {
			return fmt.Errorf("%q is above the greatest %s, %g", text, of, h)
		}
		return nil
	}
	switch a.String("Type") {
	case "Enumeration":
		var allowed []string
		for _, v := range a.Objects("Value") {
			allowed = append(allowed, v.String("ValueName"))
		}
		if !slices.Contains(allowed, text) {
			return nil, fmt.Errorf("%q is none of %s", text, strings.Join(allowed, ", "))
		}
		return text, nil
	case "Integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no whole number", text)
		}
		if err := bound(float64(n), "LowerBound", "UpperBound", "value"); err != nil {
			return nil, err
		}
		if step, ok := a.Number("ScalarIncrement"); ok && step > 0 {
			low, _ := a.Number("LowerBound")
			if math.Mod(float64(n)-low, step) != 0 {
				return nil, fmt.Errorf("%q is no step of %g from %g", text, step, low)
			}
		}
		return n, nil
	case "Boolean":
		return truth(text)
	case "Password":
		return nil, errors.New("it is a password, and is set with the controller's own tools")
	}
	if expr := a.String("ValueExpression"); expr != "" {
		if re, err := regexp.Compile(expr); err == nil && !re.MatchString(text) {
			return nil, fmt.Errorf("%q does not match %s", text, expr)
		}
	}
	return text, bound(float64(utf8.RuneCountInString(text)), "MinLength", "MaxLength", "length")
}

// alike makes a text a value of the type that an attribute has.
func alike(is any, text string) (any, error) {
	switch is.(type) {
	case bool:
		return truth(text)
	case float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("%q is no number", text)
		}
		return f, nil
	case string:
		return text, nil
	}
	return nil, errors.New("its value is neither text, number nor truth")
}

func truth(text string) (any, error) {
	v, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		return nil, fmt.Errorf("%q is neither true nor false", text)
	}
	return v, nil
}
