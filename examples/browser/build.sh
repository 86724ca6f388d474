#!/usr/bin/env bash
# Copy the page, the files of transformers.js and a converted model to a folder that any web server can serve:
#   examples/browser/build.sh runs/demo-js site
set -euo pipefail
[ $# -eq 2 ] || { echo "Usage: $0 MODEL OUTPUT" >&2; exit 2; }
model=$1 output=$2 library=@huggingface/transformers@4.3.1 runtime=ort-wasm-simd-threaded
page=$(dirname "${BASH_SOURCE[0]}")/index.html
[ -f "$model/onnx/encoder_model_quantized.onnx" ] || { echo "$model has no onnx/encoder_model_quantized.onnx." >&2; exit 2; }
[ ! -e "$output" ] || { echo "$output exists. Choose another folder, or delete it first." >&2; exit 2; }

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
fetch() {  # PACKAGE: unpack a package of npm without its dependencies
    local archive
    archive=$(npm pack --silent --pack-destination "$temporary" "$1")
    tar -xzf "$temporary/$archive" -C "$temporary"
}
mkdir -p "$temporary/site/lib" "$temporary/site/model/onnx"
fetch "$library"
cp "$temporary/package/dist/transformers.min.js" "$temporary/site/lib"
fetch "onnxruntime-web@$(node -p "require('$temporary/package/package.json').dependencies['onnxruntime-web']")"
cp "$temporary/package/dist/$runtime".{mjs,wasm} "$temporary/site/lib"
cp "$page" "$temporary/site"
cp "$model"/{config,generation_config,tokenizer,tokenizer_config}.json "$temporary/site/model"
cp "$model"/onnx/*_quantized.onnx "$temporary/site/model/onnx"
mv "$temporary/site" "$output"
