package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"auspex/internal/sim/tinkerbell"
	"auspex/internal/waittest"
)

func installer(t *testing.T, dir string) (api dynamic.NamespaceableResourceInterface, namespace string) {
	t.Helper()
	file, err := clientcmd.LoadFromFile(filepath.Join(dir, TinkerbellFile))
	if err != nil {
		t.Fatal(err)
	}
	at := clientcmd.NewDefaultClientConfig(*file, nil)
	if namespace, _, err = at.Namespace(); err != nil || namespace != tinkerbell.Namespace {
		t.Fatal(namespace, err)
	}
	cfg, err := at.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(schema.GroupVersionResource{Group: "tinkerbell.org", Version: "v1alpha1", Resource: "workflows"}), namespace
}

func TestTheKubeconfigOpensTheAPIAndObjectsStay(t *testing.T) {
	dir := t.TempDir()
	_, stop := begin(t, small(dir))
	api, namespace := installer(t, dir)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow", "metadata": map[string]any{"name": "install"},
		"spec": map[string]any{"templateRef": "none"},
	}}
	if _, err := api.Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "nobody has looked at the workflow", func() bool {
		is, err := api.Namespace(namespace).Get(t.Context(), "install", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rendering, _, _ := unstructured.NestedString(is.Object, "status", "templateRending")
		return rendering == "failed"
	})
	stop()
	_, stop = begin(t, small(dir))
	defer stop()
	api, namespace = installer(t, dir)
	if _, err := api.Namespace(namespace).Get(t.Context(), "install", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestImagesHaveTheDigestsThatTheFileTells(t *testing.T) {
	dir := t.TempDir()
	_, stop := begin(t, small(dir))
	defer stop()
	var have Images
	if err := readJSON(filepath.Join(dir, ImagesFile), &have); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, []byte) {
		t.Helper()
		resp, err := client.Get(have.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, b
	}
	if len(have.Files) < 4 {
		t.Errorf("only %v", have.Files)
	}
	for path, digest := range have.Files {
		code, content := get(path)
		if sum := sha256.Sum256(content); code != http.StatusOK || hex.EncodeToString(sum[:]) != digest {
			t.Errorf("%s: status %d, %d bytes", path, code, len(content))
		}
	}
	if code, _ := get("none"); code != http.StatusNotFound {
		t.Errorf("an image that is not there: %d", code)
	}
}
