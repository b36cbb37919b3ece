#!/usr/bin/env bash
# Checks the chart's alerts and dashboard with Prometheus' own library: the alerts are valid,
# each alert fires when it should and only then, and has its entry in
# artifacts/monitoring/README.md; the dashboard is complete, and all its queries can be
# parsed. Another test checks on a cluster that a controller serves these metrics:
# go -C test test ./monitoring
# To repair: edit the file. The message names the alert or the panel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a

go -C test test -count=1 -short ./monitoring
