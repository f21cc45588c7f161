package kube_test

import (
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"auspex/internal/sim/tinkerbell"
	"auspex/internal/waittest"
)

// TestTheRealAPIServerAnswersTheSame holds what the simulated one is held against against the real one. Where
// nobody has installed the custom resources of Tinkerbell, some without a schema take their place.
func TestTheRealAPIServerAnswersTheSame(t *testing.T) {
	file := os.Getenv("KUBE_ADMIN")
	if file == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("KUBE_ADMIN is not set: test/e2e.sh starts the peer and sets it")
		}
		t.Skip("KUBE_ADMIN is not set: run `make e2e` to test against this peer")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	connections, err := rest.HTTPClientFor(cfg) // those of all clients of one configuration
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(connections.Transport) })
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, r := range tinkerbell.Resources() {
		preserve := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": r.Plural + "." + r.Group},
			"spec": map[string]any{
				"group": r.Group, "scope": "Namespaced",
				"names": map[string]any{"plural": r.Plural, "singular": r.Singular, "kind": r.Kind, "listKind": r.Kind + "List"},
				"versions": []any{map[string]any{
					"name": r.Version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
					"schema": map[string]any{"openAPIV3Schema": map[string]any{
						"type": "object", "properties": map[string]any{"spec": preserve, "status": preserve},
					}},
				}},
			},
		}}
		if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		waittest.Until(t, func() error {
			_, err := client.Resource(r.GroupVersion().WithResource(r.Plural)).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	name := "conformance-" + strings.ToLower(time.Now().UTC().Format("20060102t150405"))
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	if _, err := namespaces.Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	conformance(t, cfg, name)
}
