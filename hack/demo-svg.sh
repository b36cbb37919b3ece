#!/usr/bin/env bash
# Runs the demo and draws what it printed, shortened, as docs/demo-light.svg and
# docs/demo-dark.svg, which README.md shows. Run it after a change of what the demo prints.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

recording=$(mktemp)
trap 'rm -f "${recording}"' EXIT
ONCE=1 hack/demo.sh | tee "${recording}"
go run -C hack/tools ./demo-svg "${PWD}/docs" <"${recording}"
