package kernlog

// telling are words of which one stands in every line of the kernel that means something, beside
// those of adapters' drivers: most lines have none and are looked at no further.
var telling = newScreen(
	"linux version", "reboot: ", "systemd-shutdown", "kernel panic", "bug: ", "general protection", "oops", "lockup", "blocked for more",
	"stall", "oom", "out of memory", "edac ", "machine check", "hardware", "memory failure:", "dpc: ", "aer:", "pcie bus error", "pciehp",
	"filesystem", "disk failure", "read error", "nvme", "i/o error", "medium error", "target error", "ext4-fs", "xfs (", "btrfs",
	"aborting journal", "jbd2: ", "watchdog", "nic link is", "link status definitely",
)

// screen finds any of some words in one pass, without regard to case: words that begin with the same
// two letters stand together.
type screen struct {
	first [1 << 12]uint8
	words [][]string // 0 is none
}

// fold makes letters of both cases the same; that it makes other bytes the same too only lets
// lines through.
func fold(c byte) byte { return c | 0x20 }

func pair(a, b byte) int { return int(a&63)<<6 | int(b&63) }

func newScreen(words ...string) *screen {
	s := &screen{words: make([][]string, 1)}
	for _, w := range words {
		b := []byte(w)
		for i := range b {
			b[i] = fold(b[i])
		}
		k := &s.first[pair(b[0], b[1])]
		if *k == 0 {
			*k = uint8(len(s.words)) //nolint:gosec // there are few
			s.words = append(s.words, nil)
		}
		s.words[*k] = append(s.words[*k], string(b))
	}
	return s
}

// in reports whether one of the words stands in a text.
func (s *screen) in(text string) bool {
	if text == "" {
		return false
	}
	before := fold(text[0])
	for i := 1; i < len(text); i++ {
		c := fold(text[i])
		if k := s.first[pair(before, c)]; k != 0 {
			for _, w := range s.words[k] {
				if begins(text[i-1:], w) {
					return true
				}
			}
		}
		before = c
	}
	return false
}

func begins(text, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := range len(word) {
		if fold(text[i]) != word[i] {
			return false
		}
	}
	return true
}
