package prometheus

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// maxNotes bounds the warnings, and the infos, of an answer.
const maxNotes = 10

// encode writes an answer, or stops where it has more than most bytes. Results of
// queries are written without reflection: they may hold millions of points.
func encode(res *result, most int) (answer []byte, ok bool) {
	if res.err != nil {
		b := append([]byte(`{"status":"error","errorType":"`), res.kind.name...)
		b = append(b, `","error":`...)
		b = appendString(b, res.err.Error())
		return append(appendNotes(b, res), '}'), true
	}
	b := []byte(`{"status":"success","data":`)
	switch v := res.data.(type) {
	case promql.Vector:
		b = append(b, `{"resultType":"vector","result":[`...)
		for i := range v {
			if len(b) > most {
				return nil, false
			}
			b = appendComma(b, i)
			b = append(b, `{"metric":`...)
			b = appendLabels(b, v[i].Metric)
			b = append(b, `,"value":`...)
			b = append(appendPoint(b, v[i].T, v[i].F), '}')
		}
		b = append(b, "]}"...)
	case promql.Matrix:
		b = append(b, `{"resultType":"matrix","result":[`...)
		for i := range v {
			if len(b) > most {
				return nil, false
			}
			b = appendComma(b, i)
			b = append(b, `{"metric":`...)
			b = appendLabels(b, v[i].Metric)
			b = append(b, `,"values":[`...)
			for k, p := range v[i].Floats {
				b = appendPoint(appendComma(b, k), p.T, p.F)
			}
			b = append(b, "]}"...)
		}
		b = append(b, "]}"...)
	case promql.Scalar:
		b = append(b, `{"resultType":"scalar","result":`...)
		b = append(appendPoint(b, v.T, v.V), '}')
	case promql.String:
		b = append(b, `{"resultType":"string","result":[`...)
		b = append(appendTime(b, v.T), ',')
		b = append(appendString(b, v.V), "]}"...)
	case []labels.Labels:
		b = append(b, '[')
		for i := range v {
			if len(b) > most {
				return nil, false
			}
			b = appendLabels(appendComma(b, i), v[i])
		}
		b = append(b, ']')
	default:
		doc, err := json.Marshal(v)
		if err != nil {
			return encode(&result{err: err, kind: errInternal}, most)
		}
		b = append(b, doc...)
	}
	b = append(appendNotes(b, res), '}')
	return b, len(b) <= most
}

func appendNotes(b []byte, res *result) []byte {
	warnings, infos := res.warnings.AsStrings(res.query, maxNotes, maxNotes)
	for _, n := range []struct {
		name  string
		texts []string
	}{{"warnings", warnings}, {"infos", infos}} {
		if len(n.texts) == 0 {
			continue
		}
		b = append(b, `,"`+n.name+`":[`...)
		for i, s := range n.texts {
			b = appendString(appendComma(b, i), s)
		}
		b = append(b, ']')
	}
	return b
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

func appendLabels(b []byte, l labels.Labels) []byte {
	b = append(b, '{')
	i := 0
	l.Range(func(l labels.Label) {
		b = append(appendString(appendComma(b, i), l.Name), ':')
		b = appendString(b, l.Value)
		i++
	})
	return append(b, '}')
}

// appendPoint writes [seconds, "value"].
func appendPoint(b []byte, ms int64, v float64) []byte {
	b = appendTime(append(b, '['), ms)
	b = append(b, `,"`...)
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	b = strconv.AppendFloat(b, v, format, -1, 64)
	return append(b, `"]`...)
}

// appendTime writes milliseconds as seconds with at most three decimals.
func appendTime(b []byte, ms int64) []byte {
	if ms < 0 {
		b = append(b, '-')
		ms = -ms
	}
	b = strconv.AppendInt(b, ms/1000, 10)
	if ms %= 1000; ms != 0 {
		b = append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	}
	return b
}

// appendString writes a JSON string; what needs no escape is copied.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' || c == '<' || c == '>' || c == '&' {
			doc, _ := json.Marshal(s)
			return append(b, doc...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
