#!/usr/bin/env bash
# Checks the chart's alerts and dashboards with Prometheus' own library: the alerts are valid,
# each fires when it should and only then, and has its entry in the README that explains it;
# and all queries can be read. Another test makes them on a cluster, about what the programs serve:
# go -C test test ./monitoring
# To repair: edit the file. The message names the alert or the panel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a

go -C test test -count=1 -short ./monitoring
