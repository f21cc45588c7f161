#!/usr/bin/env bash
# Tinkerbell (tink v0.12.2: controller, server, virtual worker; Rufio v0.6.5) on an API of its own (kube.sh), namespace "tink",
# with their custom resources. Built from tinkerbell/ (minutes, then cached by its sources).
# tinkerbell.sh install | start DIR | stop DIR      prints TINK_ADMIN and TINK_AUSPEX (kubeconfigs, as of kube.sh), TINK_STRANGER,
# TINK_GRPC, TINK_WORKER (the virtual worker's program: it speaks the real protocol and fakes the actions; tests start it), TINK_DIR
# After kill -9 of the pid in TINK_DIR/api/kube-api.pid, start again to bring the API back with all its objects.

. "$(dirname "$0")/lib.sh"
bin=$cache/tinkerbell-$(cat "$here"/tinkerbell/{go.mod,go.sum} | sha256sum | cut -c1-16)

install() {
  "$here/kube.sh" install
  [ -d "$bin" ] && return
  rm -rf "$bin.$$"; mkdir -p "$bin.$$/crds"
  (
    cd "$here/tinkerbell"
    CGO_ENABLED=0 go build -mod=readonly -ldflags='-s -w' -o "$bin.$$/" github.com/tinkerbell/tink/cmd/tink-controller \
      github.com/tinkerbell/tink/cmd/tink-server github.com/tinkerbell/tink/cmd/virtual-worker github.com/tinkerbell/rufio
    for module in tink rufio; do
      cp "$(go mod download -json "github.com/tinkerbell/$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')"/config/crd/bases/*.yaml "$bin.$$/crds/"
    done
  )
  chmod -R u+w "$bin.$$/crds"
  mv "$bin.$$" "$bin"
}

# api VERB PATH TYPE [BODY]: asks the API as its administrator.
api() {
  curl -fsSk --max-time 20 -X "$1" -H "Authorization: Bearer $token" -H "Content-Type: $3" "$KUBE_URL$2" ${4:+--data-binary "$4"}
}
established() { api GET "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/$1" application/json | grep -q '"type": *"Established"'; }

up() {
  local port file name; port=$(ports 6)
  "$here/kube.sh" start "$dir/api" >/dev/null; . "$dir/api/env"
  token=$(sed -n 's/.*token: \([^}]*\)}.*/\1/p' "$KUBE_ADMIN")
  for file in "$bin"/crds/*.yaml; do
    name=$(basename "$file" .yaml); name=${name#*_}.${name%_*}
    api PATCH "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/$name?fieldManager=peer&force=true" application/apply-patch+yaml "@$file" >/dev/null
  done
  for file in "$bin"/crds/*.yaml; do
    name=$(basename "$file" .yaml); wait_for 30 established "${name#*_}.${name%_*}"
  done
  api PATCH "/api/v1/namespaces/tink?fieldManager=peer" application/apply-patch+yaml '{apiVersion: v1, kind: Namespace, metadata: {name: tink}}' >/dev/null
  export KUBECONFIG=$KUBE_ADMIN # tink-controller ignores its --kubeconfig flag
  spawn controller "$bin/tink-controller" --kubernetes "$KUBE_URL" --namespace tink \
    --metrics-bind-address "127.0.0.1:$((port + 2))" --health-probe-bind-address "127.0.0.1:$((port + 3))"
  spawn server "$bin/tink-server" --kubeconfig "$KUBECONFIG" --kube-namespace tink \
    --grpc-authority "127.0.0.1:$port" --http-authority "127.0.0.1:$((port + 1))"
  spawn rufio "$bin/rufio" --kubernetes "$KUBE_URL" --kubeconfig "$KUBE_ADMIN" --kube-namespace tink --bmc-connect-timeout 5s \
    --metrics-bind-address "127.0.0.1:$((port + 4))" --health-probe-bind-address "127.0.0.1:$((port + 5))" # it ignores KUBECONFIG
  wait_for 30 http_ok "http://127.0.0.1:$((port + 3))/healthz"
  wait_for 30 http_ok "http://127.0.0.1:$((port + 5))/healthz"
  wait_for 30 bound tcp "$port"
  echo "TINK_ADMIN=$KUBE_ADMIN"
  echo "TINK_AUSPEX=$KUBE_AUSPEX"
  echo "TINK_STRANGER=$KUBE_STRANGER"
  echo "TINK_GRPC=127.0.0.1:$port"
  echo "TINK_WORKER=$bin/virtual-worker"
  echo "TINK_DIR=$dir"
}

down() { stop_all; "$here/kube.sh" stop "$dir/api"; }
main
