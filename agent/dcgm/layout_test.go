//go:build cgo && dcgm

package dcgm

import (
	"testing"
	"unsafe"
)

// The library knows a structure by its version, which holds the size that its headers give it (dcgm_structs.h,
// MAKE_DCGM_VERSION): on each processor that this is built for ours must have it too.
func TestStructuresHaveTheSizesOfTheLibrary(t *testing.T) {
	for name, s := range map[string]struct {
		size    uintptr
		version uint32
	}{
		"connectParams": {unsafe.Sizeof(connectParams{}), connectVersion}, "diagResponse": {unsafe.Sizeof(diagResponse{}), diagVersion},
	} {
		if want := uintptr(s.version & 0xffffff); s.size != want {
			t.Errorf("%s has %d bytes, the library's %d", name, s.size, want)
		}
	}
	var r diagResponse
	for name, c := range map[string][2]uintptr{ // as offsetof gives them, on amd64 and arm64
		"tests": {unsafe.Offsetof(r.Tests), 12}, "entities": {unsafe.Offsetof(r.Entities), 86732}, "errors": {unsafe.Offsetof(r.Errors), 365260},
		"info": {unsafe.Offsetof(r.Info), 382412}, "results": {unsafe.Offsetof(r.Results), 449484},
		"categories": {unsafe.Offsetof(r.Categories), 777164},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is at %d, the library's at %d", name, c[0], c[1])
		}
	}
}
