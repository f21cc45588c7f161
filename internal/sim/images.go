package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/tinkerbell"
)

// Paths of images of systems in the image store. What is in them nobody looks at.
const (
	UbuntuImage  = "systems/ubuntu-24.04.raw.gz"
	FlatcarImage = "systems/flatcar_production_image.bin.gz"
)

// images is what the image store has, by path.
func images() map[string][]byte {
	return map[string][]byte{
		"firmware/bmc-1.15.0.bin": fleet.Image("FW_BMC_0", "1.15.0", ""),
		"firmware/bios-1.7.0.bin": fleet.Image("FW_BIOS_0", "1.7.0", ""),
		UbuntuImage:               []byte("a system of the simulated fleet: Ubuntu 24.04\n"),
		FlatcarImage:              []byte("a system of the simulated fleet: Flatcar\n"),
	}
}

// Images is the content of images.json.
type Images struct {
	URL string `json:"url"` // ends in a slash
	// Files are paths below the URL, with their SHA-256 digests.
	Files map[string]string `json:"files"`
}

// imageHandler serves the images. Images of Talos, whose paths have the id of a schematic, are all there.
func imageHandler() http.Handler {
	have := images()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/")
		content, ok := have[path]
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case ok:
			http.ServeContent(w, r, path, time.Time{}, bytes.NewReader(content))
		case isTalos(path):
			http.ServeContent(w, r, path, time.Time{}, strings.NewReader("a system of the simulated fleet: Talos\n"))
		default:
			http.NotFound(w, r)
		}
	})
}

// isTalos tells whether a path is one of the Image Factory's.
func isTalos(path string) bool {
	seg := strings.Split(path, "/")
	return len(seg) == 4 && seg[0] == "image" && len(seg[1]) == 64 && strings.HasPrefix(seg[3], "metal-")
}

func (s *simulator) imagesAt() string {
	return "http://" + net.JoinHostPort(s.cfg.Listen, strconv.Itoa(s.ports["images"])) + "/"
}

// hasImage says what speaks against an image that is to be written: the store does not have it. What other
// stores have is not known here.
func (s *simulator) hasImage(image string) error {
	u, err := url.Parse(image)
	if err != nil {
		return fmt.Errorf("read %s: %w", image, err)
	}
	path := strings.TrimPrefix(u.Path, "/")
	if at, _ := url.Parse(s.imagesAt()); u.Host != at.Host || images()[path] != nil || isTalos(path) {
		return nil
	}
	return fmt.Errorf("read %s: HTTP status 404", image)
}

// publishInstaller writes how to reach the Kubernetes API, and what images there are.
func (s *simulator) publishInstaller() error {
	list := Images{URL: s.imagesAt(), Files: map[string]string{}}
	have := images()
	for _, path := range slices.Sorted(maps.Keys(have)) {
		sum := sha256.Sum256(have[path])
		list.Files[path] = hex.EncodeToString(sum[:])
	}
	if err := writeJSON(s.path(ImagesFile), list); err != nil {
		return err
	}
	const name = "simulated"
	file := api.NewConfig()
	file.Clusters[name] = &api.Cluster{
		Server: "https://" + net.JoinHostPort(s.cfg.Listen, strconv.Itoa(s.ports["tinkerbell"])), CertificateAuthority: s.path(caFile),
	}
	file.AuthInfos[name] = &api.AuthInfo{Token: s.token}
	file.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: tinkerbell.Namespace}
	file.CurrentContext = name
	b, err := clientcmd.Write(*file)
	if err != nil {
		return fmt.Errorf("encode %s: %w", TinkerbellFile, err)
	}
	return writeFile(s.path(TinkerbellFile), b, 0o600)
}
