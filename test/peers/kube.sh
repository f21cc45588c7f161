#!/usr/bin/env bash
# Kubernetes' API: etcd 3.6.8, kube-apiserver 1.36.3 and three of its controllers in one process, built from kube/ (about
# 5 minutes on two cores, then cached by its sources). No containers, no kubelet, no scheduler: tests bind and end pods.
# kube.sh install | start DIR | stop DIR      prints KUBE_ADMIN, KUBE_AUSPEX and KUBE_STRANGER (kubeconfigs; the user auspex has what
# deploy/kubernetes/rbac.yaml gives it once it is applied, stranger nothing), KUBE_URL, KUBE_DIR
# After kill -9 of the pid in KUBE_DIR/kube-api.pid, start again to bring it back with all its objects.

. "$(dirname "$0")/lib.sh"
binary=$cache/kube-api-$(cat "$here"/kube/{go.mod,go.sum,main.go} | sha256sum | cut -c1-16)

install() {
  [ -x "$binary" ] && return
  (cd "$here/kube" && CGO_ENABLED=0 go build -mod=readonly -ldflags='-s -w' -o "$binary.$$" . && mv "$binary.$$" "$binary")
}

up() {
  local port; port=$(ports 3)
  spawn kube-api "$binary" -dir "$dir/kube" -port "$port"
  wait_for 120 http_ok "https://127.0.0.1:$port/readyz"
  echo "KUBE_ADMIN=$dir/kube/admin.kubeconfig"
  echo "KUBE_AUSPEX=$dir/kube/auspex.kubeconfig"
  echo "KUBE_STRANGER=$dir/kube/stranger.kubeconfig"
  echo "KUBE_URL=https://127.0.0.1:$port"
  echo "KUBE_DIR=$dir"
}
main
