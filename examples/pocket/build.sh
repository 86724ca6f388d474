#!/usr/bin/env bash
# Copy the page, the engine of npm and a converted model to a folder that any web server can serve:
#   examples/pocket/build.sh runs/pocket-bergamot site
set -euo pipefail
[ $# -eq 2 ] || { echo "Usage: $0 MODEL OUTPUT" >&2; exit 2; }
model=$1 output=$2 engine=@browsermt/bergamot-translator@0.4.9
page=$(dirname "${BASH_SOURCE[0]}")/index.html
[ -f "$model/model.intgemm.alphas.bin" ] || { echo "$model has no model.intgemm.alphas.bin." >&2; exit 2; }
[ ! -e "$output" ] || { echo "$output exists. Choose another folder, or delete it first." >&2; exit 2; }

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
archive=$(npm pack --silent --pack-destination "$temporary" "$engine")
tar -xzf "$temporary/$archive" -C "$temporary"
mkdir -p "$temporary/site/model"
cp -r "$temporary/package" "$temporary/site/engine"
cp "$page" "$temporary/site"
cp "$model"/{model.intgemm.alphas.bin,vocab.spm,lex.bin} "$temporary/site/model"
mv "$temporary/site" "$output"
