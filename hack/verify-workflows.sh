#!/usr/bin/env bash
# Checks .github: actionlint accepts the workflows, every action is pinned by the hash of
# a commit, every image that runs in a release by its digest, and Dependabot proposes updates
# for every Go module.
# To repair: edit the file that the message names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
set -a
# shellcheck source=hack/build.env
. hack/build.env
set +a
status=0

"$(hack/tool.sh actionlint checks.mod)" || status=1

if grep -nE '^ *(- )?uses:' .github/workflows/*.yaml | grep -vE '@[0-9a-f]{40} # v[0-9.]+$'; then
  echo "These actions are not pinned by the hash of a commit, with the version in a comment."
  status=1
fi

# Images that run without being named are unpinned, too: the default builder's and generator's.
if grep -nE 'docker run|buildx create|--sbom|sbom_generator=|BUILD_IMAGE=|container:|docker://' .github/workflows/*.yaml hack/image.sh Dockerfile |
  grep -vE '@sha256:[0-9a-f]{64}|--sbom="generator=\$\{sbom_generator\}"|:#|\$\{PUSH|docker://\$\{IMAGE\}|echo "'; then
  echo "These images are not pinned by a digest."
  status=1
fi

while IFS= read -r file; do
  module=/$(dirname "${file}")
  if ! grep -qxF "      - ${module%/.}" <(sed 's|^      - /$|      - |' .github/dependabot.yml) && [[ ${module} != /hack/local-cluster/parts ]]; then
    echo ".github/dependabot.yml: does not list the module in ${module}"
    status=1
  fi
done < <(git ls-files --cached --others --exclude-standard -- 'go.mod' '**/go.mod')
exit "${status}"
