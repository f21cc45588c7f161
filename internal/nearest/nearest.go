// Package nearest finds the words that somebody may have meant who wrote another.
package nearest

import (
	"cmp"
	"iter"
	"slices"
	"unicode/utf8"
)

// Words returns the n known words that differ least from a word, the nearest
// first and equal ones by name. A word that differs in more than half of its
// letters is not meant.
func Words(word string, known iter.Seq[string], n int) []string {
	type candidate struct {
		word string
		cost int
	}
	letters := []rune(word)
	limit := len(letters)/2 + 1
	var found []candidate
	var row []int
	for k := range known {
		if d := utf8.RuneCountInString(k) - len(letters); d >= limit || -d >= limit {
			continue
		}
		var cost int
		if cost, row = distance(letters, k, row); cost < limit {
			found = append(found, candidate{k, cost})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.word, b.word)) })
	found = slices.Compact(found)
	out := make([]string, 0, min(n, len(found)))
	for _, g := range found[:min(n, len(found))] {
		out = append(out, g.word)
	}
	return out
}

// distance is the Levenshtein distance; row is scratch that the next call may use.
func distance(a []rune, b string, row []int) (int, []int) {
	row = row[:0]
	row = append(row, 0)
	for range b {
		row = append(row, len(row))
	}
	for i, x := range a {
		left := row[0]
		row[0] = i + 1
		j := 0
		for _, y := range b {
			j++
			cost := 1
			if x == y {
				cost = 0
			}
			left, row[j] = row[j], min(row[j]+1, row[j-1]+1, left+cost)
		}
	}
	return row[len(row)-1], row
}
