#!/usr/bin/env bash
# Checks that an image starts the binary of the release in dist: for each platform of
# Linux in dist/SHA256SUMS, that of the program. The release runs this script before it
# signs what it has pushed.
#
#   hack/compare-image.sh IMAGE PROGRAM
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
image=$1 program=$2
compared=0

while read -r want file; do
  platform=linux/${file##*_}
  container=$(docker create --quiet --pull always --platform "${platform}" "${image}")
  binary=$(docker inspect --format '{{index .Config.Entrypoint 0}}' "${container}")
  got=$(docker cp "${container}:${binary}" - | tar -xOf - | sha256sum | cut -d ' ' -f 1)
  docker rm "${container}" >/dev/null
  if [[ ${got} != "${want}" ]]; then
    echo "compare-image: ${image} for ${platform} has another ${program} than dist/${file}: ${got}, want ${want}" >&2
    exit 1
  fi
  compared=$((compared + 1))
done < <(grep -E " ${program}_v[^/]*_linux_[a-z0-9]+\$" "${DIST:-dist}/SHA256SUMS")

if ((compared == 0)); then
  echo "compare-image: ${DIST:-dist}/SHA256SUMS has no ${program} for Linux" >&2
  exit 1
fi
echo "compare-image: ${image} has the ${program} of the release, for ${compared} platforms"
