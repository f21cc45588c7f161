package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxHosts bounds the nodes of one job.
const MaxHosts = 1 << 16

var errHosts = errors.New("malformed host list")

// Hosts writes out a host list such as "gpu-r01-[01-03,07],login1".
func Hosts(list string) ([]string, error) {
	var out []string
	for _, part := range SplitTop(list) {
		hosts, err := expandOne(part, MaxHosts-len(out))
		if err != nil {
			return nil, fmt.Errorf("%w: %.60q", err, list)
		}
		out = append(out, hosts...)
	}
	return out, nil
}

// SplitTop splits a list at commas outside of brackets.
func SplitTop(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		}
	}
	out = append(out, s[from:])
	return slices.DeleteFunc(out, func(p string) bool { return strings.TrimSpace(p) == "" })
}

func expandOne(s string, room int) ([]string, error) {
	s = strings.TrimSpace(s)
	open := strings.IndexByte(s, '[')
	if open < 0 {
		if strings.ContainsAny(s, "]") || room < 1 {
			return nil, errHosts
		}
		return []string{s}, nil
	}
	end := strings.IndexByte(s[open:], ']')
	if end < 0 {
		return nil, errHosts
	}
	end += open
	tails := []string{""}
	if rest := s[end+1:]; rest != "" {
		var err error
		if tails, err = expandOne(rest, room); err != nil {
			return nil, err
		}
	}
	ids, err := Ranges(s[open+1:end], room)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, id := range ids {
		for _, t := range tails {
			if len(out) >= room {
				return nil, errHosts
			}
			out = append(out, s[:open]+id+t)
		}
	}
	return out, nil
}

// Ranges writes out "01-03,07", keeping leading zeros.
func Ranges(s string, room int) ([]string, error) {
	var out []string
	for p := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(p), "-")
		a, err := strconv.Atoi(lo)
		if err != nil || a < 0 {
			return nil, errHosts
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(hi); err != nil || b < a || b-a >= room-len(out) {
				return nil, errHosts
			}
		}
		for n := a; n <= b; n++ {
			if len(out) >= room {
				return nil, errHosts
			}
			out = append(out, fmt.Sprintf("%0*d", len(lo), n))
		}
	}
	return out, nil
}
