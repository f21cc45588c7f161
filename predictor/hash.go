package predictor

// hashOf is FNV-1a over strings, each ended by a byte that none of them holds.
func hashOf(parts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range parts {
		h = hashMore(h, s)
	}
	return h
}

func hashMore(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return (h ^ 0xff) * 1099511628211
}
