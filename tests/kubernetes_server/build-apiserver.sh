#!/usr/bin/env bash
# Builds kube-apiserver 1.20.2 from Debian's source package, for the tests in this folder: there is no binary package.
# And an elector of the client-go that is in the same sources (elector.go).
# It takes some ten minutes and a gigabyte of disk on two cores. What is there already is left alone.
#
# usage: tests/kubernetes_server/build-apiserver.sh [FOLDER]    the program is FOLDER/kube-apiserver; default target/servers
#
# Needs Debian 12 with root: it installs the packages of the build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
elector=$PWD/tests/kubernetes_server/elector.go
folder=$(realpath -m "${1:-target/servers}")
[ ! -x "$folder/kube-apiserver" ] || [ ! -x "$folder/elector" ] || exit 0

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    dpkg-dev etcd-server golang-go make openssl rsync
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cd "$build"
sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > sources.sources
mkdir -p lists/partial
from=(-o "Dir::Etc::sourcelist=$build/sources.sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$build/lists")
apt-get "${from[@]}" update -qq
apt-get "${from[@]}" source -qq kubernetes
cd kubernetes-*/
export GOPATH=$PWD/.go
mkdir -p .go/src/k8s.io
ln -sfn ../../.. .go/src/k8s.io/kubernetes
nice -n 10 env CGO_ENABLED=0 make WHAT=cmd/kube-apiserver GOLDFLAGS="-s -w"
mkdir -p cmd/elector "$folder"
cp "$elector" cmd/elector/main.go
(cd .go/src/k8s.io/kubernetes && GO111MODULE=off CGO_ENABLED=0 nice -n 10 go build -o "$folder/elector" k8s.io/kubernetes/cmd/elector)
# Moved at the end: a build that was interrupted leaves no half program.
cp _output/local/bin/linux/*/kube-apiserver "$folder/.kube-apiserver"
mv "$folder/.kube-apiserver" "$folder/kube-apiserver"
