package redfish

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// query is what a GET asks for beside the resource (DSP0266, section 7.3).
type query struct {
	levels      int  // of $expand; 0 is none
	links       bool // expand what stands in Links
	subordinate bool // expand the rest
	skip        int
	top         int // -1 is all
	filter      filter
	raw         string // of $filter
}

func badQuery(name, value string) *problem {
	return &problem{
		status: http.StatusBadRequest, id: "QueryParameterValueFormatError",
		text: "The value " + value + " of the query parameter " + name + " is not of a format that is accepted.", args: []string{value, name},
	}
}

func parseQuery(raw string) (query, *problem) {
	q := query{top: -1}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, &problem{
			status: http.StatusBadRequest, id: "QueryParameterValueFormatError", text: "The query of the request cannot be parsed.",
		}
	}
	for name, vs := range values {
		value := vs[0]
		switch name {
		case "$skip", "$top":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return q, badQuery(name, value)
			}
			if name == "$skip" {
				q.skip = n
			} else {
				q.top = n
			}
		case "$expand":
			kind, rest, levels := value, "", 1
			if i := strings.IndexByte(value, '('); i >= 0 {
				kind, rest = value[:i], value[i:]
				n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(rest, "($levels="), ")"))
				if err != nil || n < 1 || n > MaxExpand {
					return q, badQuery(name, value)
				}
				levels = n
			}
			switch kind {
			case "*":
				q.links, q.subordinate = true, true
			case ".":
				q.subordinate = true
			case "~":
				q.links = true
			default:
				return q, badQuery(name, value)
			}
			q.levels = levels
		case "$filter":
			var ok bool
			if q.filter, ok = parseFilter(value); !ok {
				return q, badQuery(name, value)
			}
			q.raw = value
		default:
			if strings.HasPrefix(name, "$") || name == "only" || name == "excerpt" {
				return q, &problem{
					status: http.StatusNotImplemented, id: "QueryNotSupported",
					text: "The query parameter " + name + " is not supported by the implementation.",
				}
			}
		}
	}
	return q, nil
}

// after is the query of the next page.
func (q query) after(skip int) string {
	next := "$skip=" + strconv.Itoa(skip)
	if q.raw != "" {
		next += "&$filter=" + url.QueryEscape(q.raw)
	}
	return next
}

// page cuts a collection's members to $skip and $top; the count stays that of the
// whole (DSP0266, section 7.3.2).
func (q query) page(doc object) *problem {
	members, ok := doc["Members"].([]object)
	if !ok {
		return nil
	}
	if len(q.filter) > 0 && doc["@odata.type"] != "#LogEntryCollection.LogEntryCollection" {
		return &problem{
			status: http.StatusNotImplemented, id: "QueryNotSupported", text: "The query parameter $filter is supported on log entries only.",
		}
	}
	members = members[min(q.skip, len(members)):]
	if q.top >= 0 {
		members = members[:min(q.top, len(members))]
	}
	doc["Members"] = members
	return nil
}

// condition compares a property with a literal; a filter is all of them.
type (
	condition struct{ property, operator, literal string }
	filter    []condition
)

// parseFilter reads "Created ge '2026-01-01T00:00:00Z' and Severity eq 'Critical'"
// (DSP0266, section 7.3.4): comparisons joined by "and", without parentheses.
func parseFilter(s string) (filter, bool) {
	var f filter
	for part := range strings.SplitSeq(s, " and ") {
		w := strings.SplitN(strings.TrimSpace(part), " ", 3)
		if len(w) != 3 || strings.ContainsAny(w[0], "()") {
			return nil, false
		}
		switch w[1] {
		case "eq", "ne", "gt", "ge", "lt", "le":
		default:
			return nil, false
		}
		f = append(f, condition{w[0], w[1], strings.Trim(strings.TrimSpace(w[2]), "'")})
	}
	return f, true
}

func (f filter) matches(doc object) bool {
	for _, c := range f {
		if !c.matches(doc) {
			return false
		}
	}
	return true
}

func (c condition) matches(doc object) bool {
	value, ok := doc[c.property]
	if !ok {
		return false
	}
	have := fmt.Sprint(value)
	order := strings.Compare(have, c.literal)
	a, err := time.Parse(time.RFC3339, have)
	b, err2 := time.Parse(time.RFC3339, c.literal)
	x, err3 := strconv.ParseFloat(have, 64)
	y, err4 := strconv.ParseFloat(c.literal, 64)
	switch {
	case err == nil && err2 == nil:
		order = a.Compare(b)
	case err3 == nil && err4 == nil && x < y:
		order = -1
	case err3 == nil && err4 == nil && x > y:
		order = 1
	}
	switch c.operator {
	case "eq":
		return order == 0
	case "ne":
		return order != 0
	case "gt":
		return order > 0
	case "ge":
		return order >= 0
	case "lt":
		return order < 0
	}
	return order <= 0
}
