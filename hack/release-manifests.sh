#!/usr/bin/env bash
# Writes what one installs of a release to dist: for each program one manifest, with the
# digests of its images, and the chart with the release's version and registry.
# .github/workflows/release.yaml runs it once the images are pushed, with these environment
# variables:
#
#   VERSION   such as v1.2.3
#   REGISTRY  where the images are, such as ghcr.io/OWNER
#   DIST      the directory; default: dist. It has images.txt, with a line REGISTRY/NAME@sha256:... for each image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${VERSION:?}" "${REGISTRY:?}"
dist=${DIST:-dist}
ours=registry.nicoleh.io

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT

# Each image of ours, whatever its tag, becomes the one that was pushed. Two lines, and an empty
# one, say that none is published.
{
  echo '/^# The image is not published/ { N; N; s/.*\n//; /^#$/d; }'
  sed -E "s#^(.*/(.*)@.*)\$#s|${ours}/\2:[^ ]*|\1|#" "${dist}/images.txt"
} >"${temp}/edits"
for manifest in artifacts/install.yaml apps/*/install.yaml; do
  [[ -e ${manifest} ]] || continue # no program is left there
  program=$(basename "$(dirname "${manifest}")")
  [[ ${program} != artifacts ]] || program=k8s-controller
  sed -f "${temp}/edits" "${manifest}" >"${dist}/${program}.install.yaml"
  if grep -n "${ours}" "${dist}/${program}.install.yaml"; then
    echo "release-manifests: ${dist}/images.txt lacks an image of ${program}" >&2
    exit 1
  fi
done

cp -R charts/k8s-controller "${temp}/"
grep -rlF "${ours}" "${temp}/k8s-controller" | xargs perl -pi -e "s{\\Q${ours}\\E}{${REGISTRY}}g"
perl -pi -e 's/ *No image is published\..*?(?=Default:|$)/ /' "${temp}/k8s-controller/values.yaml"
"$(hack/tool.sh helm)" package "${temp}/k8s-controller" --version "${VERSION#v}" --app-version "${VERSION}" --destination "${dist}"
