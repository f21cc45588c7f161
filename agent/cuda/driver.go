package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

type ptr = unsafe.Pointer

// code is CUresult (CUDA driver API reference, data types).
type code int32

// attribute of a device: how many multiprocessors it has.
const multiprocessors = 16

// blocking has a thread that waits for a GPU sleep (CU_CTX_SCHED_BLOCKING_SYNC).
const blocking = 4

// library is the part of the CUDA driver API that is used.
type library struct {
	init         func(flags uint32) code
	byPCI        func(device *int32, pci string) code
	attribute    func(value *int32, attribute, device int32) code
	setFlags     func(device int32, flags uint32) code
	retain       func(context *uintptr, device int32) code
	release      func(device int32) code
	setCurrent   func(context uintptr) code
	load         func(module *uintptr, image ptr) code
	function     func(f *uintptr, module uintptr, name string) code
	memory       func(free, total *uintptr) code
	alloc        func(at *uint64, bytes uintptr) code
	free         func(at uint64) code
	toDevice     func(to uint64, from ptr, bytes uintptr) code
	fromDevice   func(to ptr, from uint64, bytes uintptr) code
	launch       func(f uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params, extra ptr) code
	synchronize  func() code
	errorName    func(c code, text *uintptr) code
	errorMeaning func(c code, text *uintptr) code
}

// errNone says that there is no such library.
var errNone = errors.New("is not there")

// open loads the library.
func open(name string) (*library, error) {
	h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%s %w: %w", name, errNone, err)
	}
	l := &library{}
	for symbol, f := range map[string]any{
		"cuInit": &l.init, "cuDeviceGetByPCIBusId": &l.byPCI, "cuDeviceGetAttribute": &l.attribute,
		"cuDevicePrimaryCtxSetFlags_v2": &l.setFlags, "cuDevicePrimaryCtxRetain": &l.retain, "cuDevicePrimaryCtxRelease_v2": &l.release,
		"cuCtxSetCurrent": &l.setCurrent, "cuModuleLoadData": &l.load, "cuModuleGetFunction": &l.function, "cuMemGetInfo_v2": &l.memory,
		"cuMemAlloc_v2": &l.alloc, "cuMemFree_v2": &l.free, "cuMemcpyHtoD_v2": &l.toDevice, "cuMemcpyDtoH_v2": &l.fromDevice,
		"cuLaunchKernel": &l.launch, "cuCtxSynchronize": &l.synchronize, "cuGetErrorName": &l.errorName, "cuGetErrorString": &l.errorMeaning,
	} {
		at, err := purego.Dlsym(h, symbol)
		if err != nil {
			return nil, fmt.Errorf("%s has no %s: it is older than CUDA 11", name, symbol)
		}
		purego.RegisterFunc(f, at)
	}
	return l, nil
}

// err is what a call returned, in the library's words; nil where all is well.
func (l *library) err(call string, c code) error {
	if c == 0 {
		return nil
	}
	word := func(f func(code, *uintptr) code) string {
		var at uintptr
		if f(c, &at) != 0 || at == 0 {
			return ""
		}
		b := *(**[200]byte)(ptr(&at)) // a constant text of the library
		for i, x := range b {
			if x == 0 {
				return string(b[:i])
			}
		}
		return ""
	}
	return fmt.Errorf("%s: error %d %s (%s)", call, c, word(l.errorName), word(l.errorMeaning))
}
