package ipmi

import (
	"runtime"
	"testing"
	"time"
)

func TestControllersWithTheSameSensorRecordsShareWhatTheySay(t *testing.T) {
	one, other := modelOf([]byte{1, 2}), modelOf([]byte{1, 2})
	if one != other {
		t.Error("the same records are held twice")
	}
	if modelOf([]byte{1, 3}) == one {
		t.Error("other records say the same")
	}
	runtime.KeepAlive(one)
	runtime.KeepAlive(other)
	held := func() int {
		models.Lock()
		defer models.Unlock()
		return len(models.held)
	}
	for deadline := time.Now().Add(time.Minute); held() > 0; runtime.Gosched() {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%d are held, of which none is used", held())
		}
	}
}
