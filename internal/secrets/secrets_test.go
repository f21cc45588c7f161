package secrets_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"auspex/internal/secrets"
)

func TestSecretsAreReadByReferenceAndNeverShown(t *testing.T) {
	name := filepath.Join(t.TempDir(), "secrets.yaml")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bmc: {user: admin, password: hunter2}\n", 0o600)
	f, err := secrets.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	if u, p, err := f.Secret(t.Context(), "bmc"); u != "admin" || p != "hunter2" || err != nil {
		t.Error(u, p, err)
	}
	if _, _, err := f.Secret(t.Context(), "no"); !errors.Is(err, secrets.ErrUnknown) {
		t.Error(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(verb, secrets.Credential{User: "u", Password: "hunter2"}); strings.Contains(s, "hunter2") {
			t.Errorf("%s shows %s", verb, s)
		}
	}
	write("bmc: hunter2\n", 0o600)
	if _, err := secrets.Read(name); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	write("bmc: {user: a}\n", 0o644)
	if _, err := secrets.Read(name); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Error(err)
	}
}
