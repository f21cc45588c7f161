//go:build !linux

package filewatch

type notices struct{}

func (*Watch) arm() bool { return false }

// Close ends the watch.
func (*Watch) Close() {}
