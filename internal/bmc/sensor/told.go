package sensor

import (
	"strings"
	"unicode"
)

// mostLetters is of a label.
const mostLetters = 128

// Told is what a device says of a part, "" for words that makers leave in place of one.
func Told(s string) string {
	s = strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "")))
	switch strings.ToLower(s) {
	case "n/a", "na", "none", "null", "unknown", "not specified", "not available", "to be filled by o.e.m.", "default string":
		return ""
	}
	if r := []rune(s); len(r) > mostLetters {
		s = string(r[:mostLetters])
	}
	return s
}

// Serial is a number that tells parts apart, which one of zeros does not.
func Serial(s string) string {
	if s = Told(s); strings.Trim(s, "0 .-") == "" {
		return ""
	}
	return s
}
