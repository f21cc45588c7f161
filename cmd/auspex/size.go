package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const maxSizeHelp = "maximum `size` of an input, unpacked, such as 500MB or 2GiB (default 64GiB for packed inputs)"

// sizeFlag is a number of bytes on the command line.
type sizeFlag int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
	{"", 1},
}

// Set implements pflag.Value.
func (f *sizeFlag) Set(text string) error {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n*u.bytes >= 1) || n*u.bytes > math.MaxInt64/2 {
			break
		}
		*f = sizeFlag(n * u.bytes)
		return nil
	}
	return fmt.Errorf("want a size such as 500MB or 2GiB, got %q", text)
}

// String implements pflag.Value.
func (f *sizeFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*f), 10)
}

// Type implements pflag.Value.
func (*sizeFlag) Type() string { return "size" }
