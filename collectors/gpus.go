package collectors

import (
	"math"
	"time"

	"auspex/schemas"
)

// MaxGPUs bounds the GPUs of a server.
const MaxGPUs = 256

var gpuColumns = func() map[string]int {
	m := make(map[string]int, len(schemas.GPUMetrics))
	for i := range schemas.GPUMetrics {
		m[schemas.GPUMetrics[i].Name] = i
	}
	return m
}()

// GPUColumn returns where in [schemas.GPUMetrics] a metric stands; false is a metric that
// has no column.
func GPUColumn(metric string) (int, bool) {
	c, ok := gpuColumns[metric]
	return c, ok
}

// GPUs gathers readings of the GPUs of a server as rows of the packed columns. Its memory
// is used again: a reading of known GPUs allocates nothing.
type GPUs struct {
	rows   []GPURow
	values [][]float64 // column, then row; NaN is not read
	used   []bool      // columns with a value
}

// GPURow is a GPU at a time.
type GPURow struct {
	Index     uint32
	UUID, PCI string
	At        time.Time // of its newest value; zero is a row without values
}

// Row returns the number of the row of a GPU, and adds it where there is none. With a time,
// it is a row that has no values of another time.
func (g *GPUs) Row(index uint32, at time.Time) int {
	for i := range g.rows {
		if r := &g.rows[i]; r.Index == index && (at.IsZero() || r.At.IsZero() || r.At.Equal(at)) {
			return i
		}
	}
	if g.values == nil {
		g.values, g.used = make([][]float64, len(schemas.GPUMetrics)), make([]bool, len(schemas.GPUMetrics))
	}
	g.rows = append(g.rows, GPURow{Index: index})
	for i := range g.values {
		g.values[i] = append(g.values[i], math.NaN())
	}
	return len(g.rows) - 1
}

// At returns a row; it is good until the next call of Row.
func (g *GPUs) At(row int) *GPURow { return &g.rows[row] }

// Len returns how many rows there are, with and without values.
func (g *GPUs) Len() int { return len(g.rows) }

// Set takes a value of a row; the column is one of [GPUColumn].
func (g *GPUs) Set(row, column int, at time.Time, v float64) {
	g.Seen(row, at)
	g.values[column][row], g.used[column] = v, true
}

// Seen says that a row's GPU told something.
func (g *GPUs) Seen(row int, at time.Time) {
	if r := &g.rows[row]; r.At.IsZero() || at.After(r.At) {
		r.At = at
	}
}

// Value returns what Set took; NaN is nothing.
func (g *GPUs) Value(row, column int) float64 { return g.values[column][row] }

// Reset forgets all values.
func (g *GPUs) Reset() {
	for i := range g.rows {
		g.rows[i].At = time.Time{}
	}
	for i := range g.values {
		g.used[i] = false
		for j := range g.values[i] {
			g.values[i][j] = math.NaN()
		}
	}
}

// Fill writes the rows that have values into the columns of a batch, relative to a time,
// and returns how many there are.
func (g *GPUs) Fill(b *Batch, base time.Time) int {
	out := b.Gpus()
	out.Gpu, out.Delta, out.Uuid, out.Pci = out.Gpu[:0], out.Delta[:0], out.Uuid[:0], out.Pci[:0]
	out.BaseTime = base.UnixNano()
	for i := range g.rows {
		if r := &g.rows[i]; !r.At.IsZero() {
			out.Gpu, out.Delta = append(out.Gpu, r.Index), append(out.Delta, int64(r.At.Sub(base)))
			out.Uuid, out.Pci = append(out.Uuid, r.UUID), append(out.Pci, r.PCI)
		}
	}
	for c := range schemas.GPUMetrics {
		column := schemas.GPUMetrics[c].Get(out)
		*column = (*column)[:0]
		if c >= len(g.used) || !g.used[c] {
			continue
		}
		for i := range g.rows {
			if !g.rows[i].At.IsZero() {
				*column = append(*column, g.values[c][i])
			}
		}
	}
	return len(out.Gpu)
}
