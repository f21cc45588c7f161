package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// themed is a colour in the light and in the dark theme, as linear RGB.
type themed [2][3]float64

var token = regexp.MustCompile(`--([\w-]+): (?:light-dark\((#\w{6}), (#\w{6})\)|(#\w{6}));`)

func tokens(t *testing.T) map[string]themed {
	t.Helper()
	css, err := os.ReadFile(filepath.Join("src", "style", "tokens.css"))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]themed)
	for _, m := range token.FindAllStringSubmatch(string(css), -1) {
		light, dark := m[2], m[3]
		if m[4] != "" {
			light, dark = m[4], m[4]
		}
		out[m[1]] = themed{linear(light), linear(dark)}
	}
	return out
}

// linear reads #rrggbb and takes the gamma of sRGB off (IEC 61966-2-1).
func linear(hex string) (out [3]float64) {
	n, _ := strconv.ParseUint(hex[1:], 16, 32) // the pattern has matched six digits
	for k := range out {
		c := float64(n>>(16-8*k)&0xff) / 255
		if c <= 0.04045 {
			out[k] = c / 12.92
		} else {
			out[k] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return out
}

// contrast is that of WCAG 2.1, from 1 to 21.
func contrast(a, b [3]float64) float64 {
	luminance := func(c [3]float64) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// sight maps linear RGB to what eyes of a kind see: Machado, Oliveira, Fernandes,
// "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009),
// severity 1.
var sight = map[string][3][3]float64{
	"full":   {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protan": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deutan": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritan": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

func times(m [3][3]float64, v [3]float64) (out [3]float64) {
	for r := range m {
		out[r] = m[r][0]*v[0] + m[r][1]*v[1] + m[r][2]*v[2]
	}
	return out
}

// oklab is the space in which equal distances look equal (B. Ottosson, 2020).
func oklab(c [3]float64, eyes [3][3]float64) [3]float64 {
	c = times(eyes, c)
	for k := range c {
		c[k] = min(1, max(0, c[k]))
	}
	lms := times(
		[3][3]float64{
			{0.4122214708, 0.5363325363, 0.0514459929}, {0.2119034982, 0.6806995451, 0.1073969566}, {0.0883024619, 0.2817188376, 0.6299787005},
		},
		c,
	)
	for k := range lms {
		lms[k] = math.Cbrt(lms[k])
	}
	return times(
		[3][3]float64{
			{0.2104542553, 0.7936177850, -0.0040720468}, {1.9779984951, -2.4285922050, 0.4505937099}, {0.0259040371, 0.7827717662, -0.8086757660},
		},
		lms,
	)
}

// TestTextAndMarksStandOutInBothThemes measures the tokens: 4.5 for text and
// marks on what they stand on, 3 for fills of the map and for borders that carry
// a meaning (WCAG 2.1, 1.4.3 and 1.4.11).
func TestTextAndMarksStandOutInBothThemes(t *testing.T) {
	have := tokens(t)
	floors := map[string]float64{}
	for _, front := range []string{"text", "text-2", "text-3"} {
		for _, back := range []string{"bg", "surface", "raised"} {
			floors[front+" on "+back] = 4.5
		}
	}
	for _, front := range []string{"ok", "warning", "critical", "affected", "predicted", "action", "out", "unknown"} {
		floors[front+" on surface"] = 4.5
	}
	for _, front := range []string{"critical", "warning", "predicted", "action"} {
		floors[front+" on "+front+"-soft"] = 4.5
		floors[front+"-fill on ok-fill"] = 3.1
		floors[front+"-fill on surface"] = 3
	}
	maps.Copy(floors, map[string]float64{
		"text-2 on critical-soft": 4.5, "text-2 on warning-soft": 4.5, "button-text on button": 4.5, "line-strong on surface": 3,
		"focus on bg": 3,
	})
	for pair, floor := range floors {
		var front, back string
		if _, err := fmt.Sscanf(pair, "%s on %s", &front, &back); err != nil {
			t.Fatal(err)
		}
		f, known := have[front]
		b, also := have[back]
		if !known || !also {
			t.Errorf("%s: no such token", pair)
			continue
		}
		for k, theme := range []string{"light", "dark"} {
			if c := contrast(f[k], b[k]); c < floor {
				t.Errorf("%s, %s: contrast %.2f is below %.1f", pair, theme, c, floor)
			}
		}
	}
}

// TestFillsOfTheMapDifferForAllEyes keeps the closest two fills apart, also for
// people who see fewer colours.
func TestFillsOfTheMapDifferForAllEyes(t *testing.T) {
	have := tokens(t)
	fills := []string{"ok-fill", "warning-fill", "critical-fill", "affected-fill", "predicted-fill", "action-fill", "out-fill"}
	for kind, eyes := range sight {
		for k, theme := range []string{"light", "dark"} {
			for i, a := range fills {
				for _, b := range fills[i+1:] {
					x, y := oklab(have[a][k], eyes), oklab(have[b][k], eyes)
					if d := math.Hypot(math.Hypot(x[0]-y[0], x[1]-y[1]), x[2]-y[2]); d < 0.055 {
						t.Errorf("%s, %s: %s and %s are %.3f apart", kind, theme, a, b, d)
					}
				}
			}
		}
	}
}
