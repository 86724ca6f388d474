// node bergamot.cjs PACKAGE MODEL VOCABULARY SHORTLIST SETTINGS < text: the translation of each line, as one batch.
const fs = require("fs");
const path = require("path");

const [, , library, model, vocabulary, shortlist, settings] = process.argv;
const worker = (end) => path.join(library, "worker", `bergamot-translator-worker.${end}`);
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
    const bytes = file ? fs.readFileSync(file) : Buffer.alloc(0);
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
        vocabularies.push_back(load(vocabulary, 64));
        const service = new Module.BlockingService({ cacheSize: 0 });
        const files = [load(model, 256), load(shortlist, 64), vocabularies];
        const translator = new Module.TranslationModel(settings, ...files, null);
        const options = new Module.VectorResponseOptions();
        options.push_back({ alignment: false, html: false, qualityScores: false });
        for (const line of fs.readFileSync(0, "utf8").split("\n").slice(0, -1)) {
            const input = new Module.VectorString();
            input.push_back(line);
            const found = service.translate(translator, input, options);
            process.stdout.write(`${found.get(0).getTranslatedText()}\n`);
            found.delete();
            input.delete();
        }
    },
};
(0, eval)(fs.readFileSync(worker("js"), "utf8"));
