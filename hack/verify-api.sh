#!/usr/bin/env bash
# Prints how what authors import has changed since the last tag: the kit, kittest, and the
# types and clients of the API. It fails only if they cannot be compared, because v0 permits
# changes. CHANGELOG.md must tell authors about those that are incompatible.
# An argument is another tag or commit to compare with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a

if ! last=${1:-$(git describe --tags --match 'v*' --abbrev=0 2>/dev/null)}; then
  echo "There is no tag to compare the API with."
  exit 0
fi
temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
mkdir "${temp}/last"
git archive "${last}" | tar -xf - -C "${temp}/last"

apidiff=$(hack/tool.sh apidiff checks.mod)
packages=$(go list -m)/pkg # apidiff -m takes it for a module, whose packages are those below it
(cd "${temp}/last" && "${apidiff}" -m -w "${temp}/before" "${packages}")
"${apidiff}" -m -w "${temp}/now" "${packages}"
echo "Since ${last}:"
# Nobody imports pkg/icecream, the rules of the sample. A heading is dropped if nothing is below it.
"${apidiff}" -m "${temp}/before" "${temp}/now" | awk '
  !/^- / { heading = $0; next }
  !/pkg\/icecream/ { if (heading) print heading; heading = ""; print; n++ }
  END { if (!n) print "The API is the same." }'
