package faults

import (
	"fmt"
	"strconv"
	"strings"
)

// pattern is a value under a mask.
type pattern struct{ mask, value uint32 }

func (p pattern) match(v uint32) bool { return v&p.mask == p.value }

// parsePattern reads a row of '0', '1' and '-' (any), the leftmost bit 31. Rows
// that are shorter are aligned to bit 0.
func parsePattern(s string) (pattern, error) {
	if len(s) > 32 {
		return pattern{}, fmt.Errorf("pattern %q is longer than 32 bits", s)
	}
	var p pattern
	for _, c := range s {
		p.mask, p.value = p.mask<<1, p.value<<1
		switch c {
		case '1':
			p.mask, p.value = p.mask|1, p.value|1
		case '0':
			p.mask |= 1
		case '-':
		default:
			return pattern{}, fmt.Errorf("pattern %q holds %q", s, c)
		}
	}
	return p, nil
}

type nvlinkRule struct {
	NVLinkRule
	xid           int
	units         []string
	intr          [2]pattern // before R575, since R575
	hasStatus     bool
	lo, hi        uint32
	hasSecond     bool
	second        [2]pattern
	secondVerdict string
}

// NVLinkRule says what an NVLink 5 code (XID 144 to 150) with its unit,
// interrupt and status words asks for.
type NVLinkRule struct {
	Action      string // IGNORE, RESET_GPU or XID_154_EVAL (do what XID 154 says)
	Investigate string
	Severity    string // Fatal, Non-fatal or Link Fatal
	Where       string // HW, SW, FW or a mixture
	Effect      string // here and at the other end of the link
}

func (c *catalogue) addNVLink(r []string) error {
	code, err := strconv.Atoi(r[0])
	if err != nil {
		return err
	}
	rule := nvlinkRule{xid: code, units: strings.Split(r[1], "/"), secondVerdict: r[8]}
	rule.NVLinkRule = NVLinkRule{Action: r[5], Investigate: r[9], Severity: r[10], Where: r[11], Effect: r[12]}
	for i, s := range []string{r[2], r[3]} {
		if rule.intr[i], err = parsePattern(s); err != nil {
			return err
		}
	}
	if r[4] != "" {
		rule.hasStatus = true
		lo, hi, both := strings.Cut(r[4], "/")
		if !both {
			hi = lo
		}
		l, err := strconv.ParseUint(lo, 0, 32)
		if err != nil {
			return err
		}
		rule.lo = uint32(l)
		v, err := strconv.ParseUint(hi, 0, 32)
		if err != nil {
			return err
		}
		rule.hi = uint32(v)
	}
	if r[6] != "" {
		rule.hasSecond = true
		for i, s := range []string{r[6], r[7]} {
			if rule.second[i], err = parsePattern(s); err != nil {
				return err
			}
		}
	}
	c.nvlink = append(c.nvlink, rule)
	return nil
}

// NVLink returns the rule of an NVLink 5 code: unit is the word after the code
// (such as RLW_REMAP), intr and status the first two words in parentheses. The
// layout of intr changed with driver R575; the newer one is tried first. A rule
// that names the whole status goes before one that names a bit of it.
func NVLink(xid int, unit string, intr, status uint32) (NVLinkRule, bool) {
	c := load()
	for _, whole := range [...]bool{true, false} {
		for _, layout := range [...]int{1, 0} {
			for i := range c.nvlink {
				r := &c.nvlink[i]
				second := r.hasSecond && r.second[layout].match(intr)
				if r.xid != xid || !r.named(unit) || !r.intr[layout].match(intr) && !second || !r.status(status, whole) {
					continue
				}
				out := r.NVLinkRule
				if second {
					out.Action = r.secondVerdict
				}
				return out, true
			}
		}
	}
	return NVLinkRule{}, false
}

// status reports whether a rule is for a status word: for the whole word, or for
// one of several bits that are set.
func (r *nvlinkRule) status(v uint32, whole bool) bool {
	if whole {
		return !r.hasStatus || v == r.lo || v == r.hi
	}
	return r.hasStatus && r.lo == r.hi && v&r.lo != 0 && v&(v-1) != 0
}

func (r *nvlinkRule) named(unit string) bool {
	for _, u := range r.units {
		if first, _, _ := strings.Cut(u, " "); strings.EqualFold(first, unit) {
			return true
		}
	}
	return false
}
