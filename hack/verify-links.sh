#!/usr/bin/env bash
# Checks that links in Markdown files to other files of this repository, and to
# headings in them, have a target.
# To repair: edit the link. The message has its file and line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

temp=$(mktemp -d)
trap 'rm -rf "${temp}"' EXIT
go build -C hack/tools -o "${temp}/" ./verify-links
git ls-files -z --cached --others --exclude-standard -- '*.md' | xargs -0 "${temp}/verify-links"
