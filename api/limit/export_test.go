package limit

// Len is how many keys are kept.
func (l *Limiter[K]) Len() int { return len(l.at) }
