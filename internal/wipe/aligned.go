package wipe

import "unsafe"

// aligned is a block in memory at a multiple of its size, as reads that pass the kernel's cache by want it (open(2), O_DIRECT).
func aligned() []byte {
	b := make([]byte, 2*BlockSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (BlockSize - 1)
	return b[skip : skip+BlockSize : skip+BlockSize]
}
