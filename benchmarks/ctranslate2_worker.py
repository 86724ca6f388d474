"""
Translate with CTranslate2 in its own process and environment; `bench_decoding` starts it.

    python -m benchmarks.ctranslate2_worker FOLDER THREADS

Each line of standard input is a request in JSON: `sentences` (lists of tokens) and `options`. Each line of output is
the JSON list of the best hypotheses.
"""

import json
import sys

import ctranslate2

if __name__ == "__main__":
    folder, threads = sys.argv[1:]
    translator = ctranslate2.Translator(folder, intra_threads=int(threads))
    print(ctranslate2.__version__, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        results = translator.translate_batch(request["sentences"], **request["options"])
        print(json.dumps([result.hypotheses[0] for result in results]), flush=True)
