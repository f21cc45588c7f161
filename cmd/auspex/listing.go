package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// listing prints what a store keeps, as a table or as one JSON object a line.
type listing[T any] struct {
	head []string
	// page returns what comes after a cursor, "" at first, and the next one, "" at the end.
	page func(after string) (items []T, next string, err error)
	row  func(*T) []any // as many as head
	doc  func(*T) any
}

func (l listing[T]) print(format string, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(out)
	if format == "table" {
		fmt.Fprintln(w, strings.Join(l.head, "\t"))
	}
	for after := ""; ; {
		items, next, err := l.page(after)
		if err != nil {
			return err
		}
		for i := range items {
			if format == "table" {
				fmt.Fprintf(w, strings.Repeat("\t%v", len(l.head))[1:]+"\n", l.row(&items[i])...)
			} else if err := lines.Encode(l.doc(&items[i])); err != nil {
				return err
			}
		}
		if after = next; next == "" {
			return w.Flush()
		}
	}
}

const listPage = 500
