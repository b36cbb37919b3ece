#!/usr/bin/env bash
# Checks artifacts/monitoring with Prometheus' own library: the alerts are valid,
# each fires when it should and only then, and has its entry in the README; the
# dashboard is complete, and all its queries can be read. Whether a controller
# serves what they ask for is a test on a cluster: go -C test test ./monitoring
# Repair: the file; the complaint names the alert or the panel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go -C test test -count=1 -short ./monitoring
