// Translate standard input, line by line, with the files beside this one:
//   node translate.cjs [int8 | float32] [LINES] < text
// So many lines are translated at once, by default one. Node must find @browsermt/bergamot-translator from the working
// folder, in `node_modules` of it or above it, or in NODE_PATH.
const fs = require("fs");
const path = require("path");

const [, , precision = "int8", lines = "1"] = process.argv;
const int8 = precision === "int8";
const library = path.dirname(
    require.resolve("@browsermt/bergamot-translator/package.json", { paths: [process.cwd()] }),
);
const worker = (end) => path.join(library, "worker", `bergamot-translator-worker.${end}`);
// Each line is one sentence, however long. The shortlist is given as memory, so its name is left out.
const settings = fs.readFileSync(path.join(__dirname, "config.yml"), "utf8")
    .replace(/^shortlist:\n(- .*\n)+/m, "")
    .replace(/^max-length-break: .*/m, "max-length-break: 1024\nssplit-mode: sentence")
    .replace(/^mini-batch-words: .*/m, "mini-batch-words: 10000")
    .replace(/^gemm-precision: .*/m, `gemm-precision: ${int8 ? "int8shiftAlphaAll" : "float32"}`);
// The engine imports its multiplications from the browser, or else from itself under other names.
const GEMM = {
    int8_prepare_a: "int8PrepareAFallback",
    int8_prepare_b: "int8PrepareBFallback",
    int8_prepare_b_from_transposed: "int8PrepareBFromTransposedFallback",
    int8_prepare_b_from_quantized_transposed: "int8PrepareBFromQuantizedTransposedFallback",
    int8_prepare_bias: "int8PrepareBiasFallback",
    int8_multiply_and_add_bias: "int8MultiplyAndAddBiasFallback",
    int8_select_columns_of_b: "int8SelectColumnsOfBFallback",
};

function load(file, alignment) {
    const bytes = file ? fs.readFileSync(path.join(__dirname, file)) : Buffer.alloc(0);
    const memory = new Module.AlignedMemory(bytes.length, alignment);
    memory.getByteArrayView().set(bytes);
    return memory;
}

globalThis.Module = {
    instantiateWasm(imports, accept) {
        const call = (name) => (...values) => Module.asm[name](...values);
        imports.wasm_gemm = Object.fromEntries(Object.entries(GEMM).map(([name, own]) => [name, call(own)]));
        WebAssembly.instantiate(fs.readFileSync(worker("wasm")), imports).then(({ instance }) => accept(instance));
        return {};
    },
    print: console.error,
    printErr: console.error,
    onRuntimeInitialized() {
        const vocabularies = new Module.AlignedMemoryList();
        vocabularies.push_back(load("vocab.spm", 64));
        const service = new Module.BlockingService({ cacheSize: 0 });
        // The shortlist is for int8: float32 shows that the weights are the same.
        const files = [load(int8 ? "model.intgemm.alphas.bin" : "model.bin", 256), load(int8 ? "lex.bin" : null, 64)];
        const translator = new Module.TranslationModel(settings, ...files, vocabularies, null);
        const texts = fs.readFileSync(0, "utf8").replace(/\n$/, "").split("\n");
        for (let start = 0; start < texts.length; start += Number(lines)) {
            const input = new Module.VectorString();
            const options = new Module.VectorResponseOptions();
            const batch = texts.slice(start, start + Number(lines));
            for (const text of batch) {
                input.push_back(text);
                options.push_back({ alignment: false, html: false, qualityScores: false });
            }
            const found = service.translate(translator, input, options);
            process.stdout.write(batch.map((_, index) => `${found.get(index).getTranslatedText().trim()}\n`).join(""));
            for (const each of [found, input, options]) each.delete();
        }
    },
};
(0, eval)(fs.readFileSync(worker("js"), "utf8"));
