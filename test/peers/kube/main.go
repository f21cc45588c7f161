// Command kube-api runs etcd, kube-apiserver and three of the controllers of
// kube-controller-manager in one process on loopback, so that what speaks to
// Kubernetes can be tested against the real thing without containers: the
// disruption controller (without it no PodDisruptionBudget ever allows an
// eviction), the garbage collector and the namespace controller. There is no
// kubelet and no scheduler: whoever tests binds pods, sets their status, and
// takes away those that are to be deleted.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

// users are those that a kubeconfig is written for; the group of admin may do
// everything, the others what a test binds to them.
var users = map[string]string{"admin": "system:masters", "auspex": "", "stranger": ""}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:%d", certificate-authority: %q}}]
users: [{name: %[3]s, user: {token: %[4]s}}]
contexts: [{name: test, context: {cluster: test, user: %[3]s}}]
current-context: test
`

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-api:", err)
		os.Exit(1)
	}
}

func main() {
	dir := flag.String("dir", "", "state `directory` (absolute)")
	port := flag.Int("port", 16443, "API `port`; etcd takes the next two")
	flag.Parse()
	if !filepath.IsAbs(*dir) {
		must(errors.New("-dir must be absolute"))
	}
	must(os.MkdirAll(*dir, 0o700))
	startEtcd(*dir, *port)
	admin := credentials(*dir, *port)
	go func() {
		must(controllers(context.Background(), admin))
	}()
	os.Exit(serve(*dir, *port))
}

func startEtcd(dir string, port int) {
	endpoint := func(offset int) []url.URL {
		return []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port+offset)}}
	}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.LogLevel = "error"
	cfg.UnsafeNoFsync = true // a test's state need not survive power loss
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = endpoint(1), endpoint(1)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = endpoint(2), endpoint(2)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	must(err)
	<-etcd.Server.ReadyNotify()
}

// credentials writes what a start needs and returns the administrator's
// kubeconfig. A later start finds the tokens of the first.
func credentials(dir string, port int) string {
	write := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			must(os.WriteFile(path, data, 0o600))
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	var tokens strings.Builder
	for user, group := range users {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, user, user, group)
		write(user+".kubeconfig", fmt.Appendf(nil, kubeconfig, port, filepath.Join(dir, "certs", "apiserver.crt"), user, token))
	}
	write("tokens.csv", []byte(tokens.String()))
	return filepath.Join(dir, "admin.kubeconfig")
}

func serve(dir string, port int) int {
	cmd := app.NewAPIServerCommand()
	cmd.SetArgs([]string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", port+1),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + filepath.Join(dir, "certs"),
		"--service-account-key-file=" + filepath.Join(dir, "sa.key"),
		"--service-account-signing-key-file=" + filepath.Join(dir, "sa.key"),
		"--service-account-issuer=https://127.0.0.1",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	})
	return cli.Run(cmd)
}

// controllers waits for the API and runs them as kube-controller-manager does.
func controllers(ctx context.Context, file string) error {
	var cfg *rest.Config
	var client *kubernetes.Clientset
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		if cfg, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
			return false, nil // the certificate is not there yet
		}
		cfg.QPS, cfg.Burst = 200, 400
		if client, err = kubernetes.NewForConfig(cfg); err != nil {
			return false, nil
		}
		_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	scales, err := scale.NewForConfig(cfg, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, time.Minute)
	core, apps := shared.Core().V1(), shared.Apps().V1()
	budgets := disruption.NewDisruptionController(ctx, core.Pods(), shared.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, mapper, scales, client.Discovery())
	spaces := namespace.NewNamespaceController(ctx, client, meta, client.Discovery().ServerPreferredNamespacedResources, core.Namespaces(), time.Minute, v1.FinalizerKubernetes)
	started := make(chan struct{})
	garbage, err := garbagecollector.NewGarbageCollector(ctx, client, meta, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(meta, time.Minute)), started)
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	close(started)
	const period = 30 * time.Second
	go budgets.Run(ctx)
	go spaces.Run(ctx, 4)
	go garbage.Run(ctx, 4, period)
	garbage.Sync(ctx, discovery.ServerResourcesInterface(client.Discovery()), period)
	return nil
}
