#!/usr/bin/env bash
# Runs go test in a directory and lists the slowest tests at the end. Failures are printed
# as soon as a test ends.
#
#   hack/test.sh DIRECTORY [FLAG...] PACKAGE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=hack/build.env
gogc=$(. hack/build.env && echo "${GOGC}")
gotestsum=$(hack/tool.sh gotestsum)
cd "$1"
shift

format=pkgname-and-test-fails
for flag in "$@"; do
  case ${flag} in
  -v) format=standard-verbose ;;
  -race) export CGO_ENABLED=1 ;; # which the race detector needs
  esac
done
times=$(mktemp)
trap 'rm -f "${times}"' EXIT
# GOGC is for the compiler alone. vet would look at all of Kubernetes' libraries as well;
# make lint has it for our own code.
"${gotestsum}" --format "${format}" --format-icons text --jsonfile-timing-events "${times}" -- \
  -vet=off -toolexec="env GOGC=${gogc}" "$@" || status=$?
echo "The slowest tests:"
"${gotestsum}" tool slowest --num 10 --jsonfile "${times}"
exit "${status:-0}"
