package estate

import (
	"strconv"
	"strings"
)

// where is a condition of what a list is asked for, and of nothing else: with a condition for
// what nobody asked, of which a parameter says that it does not count, a database plans to read all.
type where struct {
	text strings.Builder
	args []any
}

// and adds a condition of a value, which stands in it as $.
func (w *where) and(condition string, value any) {
	w.args = append(w.args, value)
	w.plain(strings.ReplaceAll(condition, "$", "$"+strconv.Itoa(len(w.args))))
}

func (w *where) plain(condition string) {
	if w.text.Len() > 0 {
		w.text.WriteString(" AND ")
	}
	w.text.WriteString(condition)
}

const ofPool = `s.pool_id IN (SELECT id FROM pools WHERE lower(name)=lower($))`

func serversWhere(f *Filter) *where {
	w := &where{}
	if f.Status != "" {
		w.and(`s.status=$`, f.Status)
	}
	if f.Pool != "" {
		w.and(ofPool, f.Pool)
	}
	if f.Model != "" {
		w.and(`lower(s.model)=lower($)`, f.Model)
	}
	if f.Label != "" {
		w.and(`replace(s.labels, $, '')<>s.labels`, labelled(f.Label))
	}
	if !f.Gone {
		w.plain(`s.present`)
		if f.Status == "" {
			w.plain(`s.status<>'retired'`)
		}
	}
	if w.text.Len() == 0 {
		w.plain(`TRUE`)
	}
	return w
}

func gpusWhere(f *Filter) *where {
	w := &where{}
	if f.Server != "" {
		w.and(`g.server_id IN (SELECT id FROM servers WHERE id=$ OR name=$)`, f.Server)
	}
	if f.Status != "" {
		w.and(`g.status=$`, f.Status)
	}
	if f.Pool != "" {
		w.and(ofPool, f.Pool)
	}
	if f.Model != "" {
		w.and(`lower(g.model)=lower($)`, f.Model)
	}
	if !f.Gone {
		w.plain(`g.present AND s.status<>'retired'`)
	}
	if w.text.Len() == 0 {
		w.plain(`TRUE`)
	}
	return w
}
