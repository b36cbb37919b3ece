#!/usr/bin/env bash
# Builds a tool at the version that hack/tools pins, if Go's cache does not have it, and
# prints its path. In hack/tools, a directory vendor of the repository is in nobody's way;
# "go tool" heeds no -mod.
#
#   hack/tool.sh NAME [MODFILE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/tools"
set -a
# shellcheck source=hack/build.env
. ../build.env
set +a
go tool -modfile="${2:-go.mod}" -n "$1"
