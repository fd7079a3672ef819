#!/usr/bin/env bash
# Generates the Python stubs: gen.sh PYTHON OUT. (google.rpc and grpc.health come with packages of their own.)
set -euo pipefail
python=$(realpath -s "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../../proto"
"$python" -m grpc_tools.protoc -I . --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" toolpulse/v1/*.proto
