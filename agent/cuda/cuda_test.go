package cuda

import (
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"auspex/agent/acts"
	"auspex/agent/cuda/stub"
)

// TestMain is also the process that works.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Argument {
		os.Exit(Child(os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// validation is with a library that behaves as the lines say.
func validation(t *testing.T, lines ...string) acts.Validation {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is missing, which compiles a library in CUDA's place")
	}
	dir := t.TempDir()
	library, err := stub.Compile(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "manner")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(stub.Env, file)
	return acts.Validation{Memory: 20 * time.Second, Burst: 50 * time.Millisecond, CUDA: library}
}

var gpu = acts.GPU{Number: 3, PCI: "0000:4e:00.0"}

func TestWhatAGPUDoesIsChecked(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  []string // result, test, and words of the message
	}{
		{"sound", nil, []string{"passed memory 6 patterns over 63 MiB", "passed compute 4 multiprocessors computed the same"}},
		{"in many pieces", []string{"free 1400"}, []string{"passed memory 6 patterns over 1143 MiB", "passed compute"}},
		{"a word that is wrong", []string{"wrong 5000000 10"}, []string{"failed memory 6 words were read otherwise than they were written, the first at 38 MiB of what was free; bits that differ: 0x10", "passed compute"}},
		{"a multiprocessor that computes something else", []string{"miscompute 2"}, []string{"passed memory", "failed compute threads computed something else, on multiprocessors 2"}},
		{"one that does not run", []string{"asleep 3"}, []string{"passed memory", "warned compute it ran on 3 of 4 multiprocessors"}},
		{"many multiprocessors", []string{"units 200", "miscompute 130"}, []string{"passed memory", "failed compute on multiprocessors 130"}},
		{"no memory is free", []string{"free 200"}, []string{"skipped memory no memory of it is free", "passed compute"}},
		{"a system that is not ready", []string{"error cuInit 802"}, []string{"failed start cuInit: error 802 CUDA_ERROR_SYSTEM_NOT_READY (system not yet initialized)"}},
		{"an error on the way", []string{"error cuCtxSynchronize 214"}, []string{"failed memory cuCtxSynchronize: error 214"}},
		{"a driver that ends the process", []string{"die cuMemGetInfo_v2"}, []string{"failed memory the process has ended before it had an answer: exit status 2 cuMemGetInfo_v2: Xid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, begun := validation(t, c.lines...), 0
			tests := Process{}.Compute(t.Context(), gpu, v, func() { begun++ })
			if len(tests) != len(c.want) {
				t.Fatalf("%+v", tests)
			}
			for i, want := range c.want {
				f := strings.SplitN(want, " ", 3)
				if x := tests[i]; string(x.Result) != f[0] || x.Name != f[1] || x.GPU != 3 || len(f) == 3 && !strings.Contains(x.Message, f[2]) {
					t.Errorf("%+v, want %s", x, want)
				}
			}
			if computed := tests[len(tests)-1].Name == "compute"; computed != (begun == 1) {
				t.Errorf("computing began %d times", begun)
			}
		})
	}
}

// A call that does not return is killed with its process, when its time is over or the caller's is.
func TestACallThatDoesNotReturnIsKilled(t *testing.T) {
	v := validation(t, "hang cuMemAlloc_v2")
	ctx, done := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer done()
	began := time.Now()
	tests := Process{}.Compute(ctx, gpu, v, func() {})
	if len(tests) != 1 || tests[0].Result != acts.Broken || tests[0].Name != "memory" || !strings.Contains(tests[0].Message, "was killed") {
		t.Errorf("%+v", tests)
	}
	if took := time.Since(began); took > startup {
		t.Errorf("it took %s", took)
	}
}

func TestAServerWithoutCUDAIsNotBlamed(t *testing.T) {
	for library, want := range map[string]string{filepath.Join(t.TempDir(), "libcuda.so.1"): "is not there"} {
		tests := Process{}.Compute(t.Context(), gpu, acts.Validation{CUDA: library, Burst: time.Second}, func() {})
		if len(tests) != 1 || tests[0].Result != acts.Skipped || !strings.Contains(tests[0].Message, want) {
			t.Errorf("%+v", tests)
		}
	}
	tests := Process{Program: "/nowhere"}.Compute(t.Context(), gpu, acts.Validation{}, func() {})
	if len(tests) != 1 || tests[0].Result != acts.Skipped {
		t.Errorf("%+v", tests)
	}
}

// What a GPU must compute is known to the bit.
func TestProductsAndSumsAreRoundedOnce(t *testing.T) {
	// Half way between two numbers, but for what is lost when 64 bits hold the sum.
	half, little := float32(1+1./(1<<12)), float32(0x1p-70)
	if up, down := fma(half, half, little), fma(half, half, -little); up != 1+0x1p-11+0x1p-23 || down != 1+0x1p-11 {
		t.Errorf("%v and %v", up, down)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		a, b, c := math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
		if r.IntN(2) == 0 { // as in a burst
			a = r.Float32()
			b, c = -a, a
		}
		if x := math.Abs(float64(a) * float64(b)); math.IsNaN(x) || math.IsInf(x, 0) || x < 1e-30 || x > 1e30 || c != c || math.Abs(float64(c)) > 1e30 || math.Abs(float64(c)) < 1e-30 {
			continue
		}
		exact := new(big.Float).SetPrec(1000).SetFloat64(float64(a))
		exact.Mul(exact, big.NewFloat(float64(b)))
		exact.Add(exact, big.NewFloat(float64(c)))
		if want, _ := exact.Float32(); fma(a, b, c) != want {
			t.Fatalf("%v * %v + %v = %v, want %v", a, b, c, fma(a, b, c), want)
		}
	}
}
