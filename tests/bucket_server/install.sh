#!/usr/bin/env bash
# Installs two services for the tests of locks in a bucket: moto (S3) in a Python of its own, since it and the client of
# Kubernetes want different libraries, and Azurite (Azure). It takes a minute and half a gigabyte. What is there is left alone.
#
# usage: tests/bucket_server/install.sh [FOLDER]    default target/servers; the programs are FOLDER/moto/bin/python and
#                                                   FOLDER/azurite/node_modules/.bin/azurite-blob
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(realpath -m "${1:-target/servers}")
mkdir -p "$folder"

if [ ! -e "$folder/moto/.installed" ]; then
    python3 -m venv "$folder/moto"
    "$folder/moto/bin/python" -m pip install --quiet --disable-pip-version-check \
        'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5
    touch "$folder/moto/.installed"
fi
if [ ! -e "$folder/azurite/.installed" ]; then
    mkdir -p "$folder/azurite"
    npm install --silent --no-audit --no-fund --no-save --prefix "$folder/azurite" azurite@3.35.0
    touch "$folder/azurite/.installed"
fi
