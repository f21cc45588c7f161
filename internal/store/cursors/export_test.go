package cursors

// Waiting returns how many positions wait for those that are being written.
func (c *Store) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		return 0
	}
	return len(c.waiting.positions)
}

// Writes reports whether positions are being written.
func (c *Store) Writes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}
