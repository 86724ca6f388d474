"""The cases of the golden tests: subject → name → the door, a method of `doors.Doors`, and its
keyword arguments.
"""

import shlex
from typing import Any

Cases = dict[str, dict[str, Any]]

TEXTS = ["A man is sleeping.", "Two dogs run.\n\nA man.", " ", "Grass"]
LINES = ["A man is sleeping.", "Two dogs run.", "Grass", "A man"]
LONG = "A man is sleeping. Two dogs run across the green grass. A dog runs! Grass?\nA man. "
ALL = {"return_scores": True, "return_tokens": True}
# Token ids: bytes and merges follow the special tokens.
SOURCES = [[70, 110, 280, 90, 2], [75, 299, 2, 0, 0], [103, 88, 261, 2, 0], [290, 2, 0, 0, 0]]
PROMPTS = [[70, 110, 280, 90], [0, 0, 75, 299], [0, 103, 88, 261], [0, 0, 0, 290]]
PROMPT_MASK = [[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]]


def without_padding(rows: list[list[int]]) -> list[list[int]]:
    return [list(filter(None, row)) for row in rows]


ROWS, PROMPT_ROWS = without_padding(SOURCES), without_padding(PROMPTS)

POWER = {"length_penalty_type": "power"}
# Options of greedy and beam search that `generate()`, the pipeline and the engine share.
SEARCHES: Cases = {
    "greedy": {"num_beams": 1},
    "beam": {},
    "two": {"num_beams": 2, "num_return_sequences": 2},
    "n_best": {"num_return_sequences": 4},
    "longer": {"length_penalty": 2.0, "num_return_sequences": 2},
    "shorter": {"length_penalty": -0.5, "num_return_sequences": 2},
    "without_penalty": {"length_penalty": 0.0, "num_return_sequences": 2},
    "power": {**POWER, "length_penalty": 0.6, "num_return_sequences": 2},
    "power_of_1": {**POWER, "length_penalty": 1.0, "num_return_sequences": 2},
    "stop_early": {"early_stopping": True, "num_return_sequences": 3},
    "stop_by_estimate": {"early_stopping": False, "num_return_sequences": 3},
    "stop_never_power": {**POWER, "early_stopping": "never", "length_penalty": 1.0},
    "at_least_4": {"min_new_tokens": 4, "num_return_sequences": 2},
    "greedy_at_least_4": {"num_beams": 1, "min_new_tokens": 4},
    "at_most_3": {"max_new_tokens": 3, "num_return_sequences": 2},
    "greedy_at_most_3": {"num_beams": 1, "max_new_tokens": 3},
    "max_length": {"max_length": 6, "num_return_sequences": 2},
    "beyond_0": {"max_new_tokens_beyond_source": 0, "num_return_sequences": 2},
    "greedy_beyond_2": {"num_beams": 1, "max_new_tokens_beyond_source": 2},
    "ends": {"eos_token_id": [2, 70, 101], "num_return_sequences": 2},
    "greedy_ends": {"num_beams": 1, "eos_token_id": [2, 70, 101]},
    "forced_first": {"forced_bos_token_id": 80, "num_return_sequences": 2},
    "greedy_forced_first": {"num_beams": 1, "forced_bos_token_id": 80},
}
# Options that `generate()` alone follows today.
PROCESSED: Cases = {
    "repetition_penalty": {"repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[80], [70, 101], [91]]},
    "suppress_tokens": {"suppress_tokens": [80, 90]},
}
TWO = {"num_return_sequences": 2}
SAMPLING: Cases = {
    "top_50": {},
    "all_tokens": {"top_k": 0},
    "temperature": {"temperature": 0.6, "top_k": 0},
    "top_5": {"top_k": 5, "num_return_sequences": 3},
    "top_p": {"top_k": 0, "top_p": 0.8, "num_return_sequences": 2},
    "epsilon_cutoff": {"top_k": 0, "epsilon_cutoff": 0.02},
    "mixture": {"temperature": 1.3, "top_k": 20, "top_p": 0.9, **TWO},
}
for name, options in SAMPLING.items():
    SAMPLING[name] = {"do_sample": True, "num_beams": 1, **options}
# Options of beam search of the engine.
HUND = {"constraints": ["Hund"]}
TWO_BEAMS = {"num_beams": 2}
PREFIXES = ["Ein", "", "Zwei Hunde", "A man"]
FEATURES: Cases = {
    "shared_constraints": {"constraints": ["Hund"]},
    "phrases": {"constraints": ["man", "grass is"], "num_return_sequences": 4},
    "part_of_a_word": {"constraints": ["Mann*"], "num_return_sequences": 2},
    "own_constraints": {"constraints": [["Hund"], [], ["ein Gras", "dogs"], ["a"]]},
    "force_words_ids": {"force_words_ids": [[80, 75], [110]]},
    "constraints_wu": {**HUND, "length_penalty": 1.5, "min_new_tokens": 6},
    "prefix": {"target_prefix": "Ein"},
    "own_prefixes": {"target_prefix": PREFIXES, "num_return_sequences": 3},
    "greedy_prefix": {"target_prefix": "Ein Ma", "num_beams": 1},
    "prefix_and_constraints": {"target_prefix": "Ein", "constraints": ["Hund"]},
    "alternatives": {"alternatives": 4},
    "alternatives_after_prefix": {"alternatives": 3, "target_prefix": "Ein", **TWO_BEAMS},
}
COOL = {"temperature": 0.5}
CHOICES: Cases = {
    "chrf_of_samples": {"mbr": "chrf", "seed": 3, "mbr_samples": 6},
    "bleu_of_samples": {"mbr": "bleu", "seed": 4, "mbr_samples": 6, "do_sample": True},
    "chrf_of_cool_samples": {**COOL, "mbr": "chrf", "seed": 5, "mbr_samples": 5, **ALL},
    "chrf_of_n_best": {"mbr": "chrf", "num_beams": 4, "return_scores": True},
    "bleu_of_n_best": {"mbr": "bleu", "num_beams": 4},
}
SUPPORTED = ["reverse", "learned", "linear", "linear_cross", "lsh", "reversible"]
ENCODER_DECODERS = [*SUPPORTED, "transfo_xl"]
DECODERS = ["causal", "causal_linear", "causal_lsh", "causal_reversible"]
SOME_SEARCHES = ["greedy", "two", "at_least_4", "at_most_3", "power", "greedy_ends"]
SOME_OF_PROMPTS = ["greedy", "two", "at_least_4", "stop_early", "greedy_ends"]


def named(door: str, cases: Cases, prefix: str = "", **shared: Any) -> Cases:
    """Return cases of a door that share some arguments."""
    complete: Cases = {}
    for name, options in cases.items():
        complete[f"{prefix}{name}"] = case(door, **shared | options)
    return complete


def case(door: str, **arguments: Any) -> dict[str, Any]:
    return {"door": door, **arguments}


def chosen(cases: Cases, names: list[str]) -> Cases:
    return {name: cases[name] for name in names}


def _generate() -> Cases:
    cases = named("generate", SEARCHES | PROCESSED, model="plain", ids=SOURCES)
    greedy = {"num_beams": 1}
    cases |= named("generate", PROCESSED, "greedy_", model="plain", ids=SOURCES, **greedy)
    cases |= named("generate", SAMPLING, "sample_", model="plain", ids=SOURCES, seed=7)
    cases["sample_beams"] = {**cases["sample_temperature"], "num_beams": 2}
    return cases


def _long() -> Cases:
    cases: Cases = {}
    for model in ENCODER_DECODERS:
        searches = chosen(SEARCHES, SOME_SEARCHES)
        cases |= named("generate", searches, f"{model}_", model=model, ids=SOURCES)
        shared: dict[str, Any] = {"model": model, "ids": SOURCES, "seed": 5}
        cases[f"{model}_sample_top_5"] = case("generate", **shared, **SAMPLING["top_5"])
    for model in ENCODER_DECODERS:
        targets = [[70, 299, 80, 2], [2], [101, 90, 2], [110, 111, 112, 113, 2]]
        cases[f"{model}_score"] = case("score", model=model, ids=ROWS, targets=targets)
    return cases


def _prompts() -> Cases:
    cases: Cases = {}
    for model in [*DECODERS, "causal_transfo_xl"]:
        searches: Cases = {}
        for name in SOME_OF_PROMPTS:
            searches[name] = {"num_beams": 4, **SEARCHES[name], "max_new_tokens": 9}
        if model == "causal":
            for name, options in PROCESSED.items():
                searches[name] = {"max_new_tokens": 9, "num_beams": 3, **options}
            longer = {"num_beams": 4, "length_penalty": 2.0, "max_new_tokens": 9}
            searches["longer"] = longer
            searches["max_length"] = {"num_beams": 4, "max_length": 8}
        shared: dict[str, Any] = {"model": model, "ids": PROMPTS, "mask": PROMPT_MASK}
        if model in ("causal_lsh", "causal_transfo_xl"):  # which know no padding
            shared = {"model": model, "ids": [PROMPTS[0], [75, 299, 103, 88]]}
        cases |= named("generate", searches, f"{model}_", **shared)
        sampling = chosen(SAMPLING, ["top_5", "top_p"])
        shared |= {"seed": 3, "max_new_tokens": 9}
        cases |= named("generate", sampling, f"{model}_sample_", **shared)
    return cases


def _engine() -> Cases:
    cases = named("engine", SEARCHES, model="plain", ids=ROWS)
    for options in cases.values():
        options["count"] = options.pop("num_return_sequences", 1)
    for model in SUPPORTED:
        for name in ("greedy", "n_best"):
            cases[f"{model}_{name}"] = {**cases[name], "model": model, "slots": 2}
    for model in DECODERS:
        for beams in (1, 3):
            options = {"num_beams": beams, "max_new_tokens": 9, "count": beams}
            shared = {"model": model, "ids": PROMPT_ROWS}
            cases[f"{model}_{beams}"] = case("engine", **shared, **options)
    requests = {"prefixes": [[80, 81], [], [90], [299, 70]]}
    for model in ("learned", "lsh", "linear"):
        shared = {"model": model, "ids": ROWS, "num_beams": 3, "target_prefix": ""}
        cases[f"{model}_prefixes"] = case("engine", **shared, requests=requests)
    for model in ("plain", "linear_cross", "causal", "causal_lsh"):
        ids = PROMPT_ROWS if model.startswith("causal") else ROWS
        for name in ("top_5", "mixture"):
            options = dict(SAMPLING[name])
            options["count"] = options.pop("num_return_sequences")
            options |= {"requests": {"seed": 11}, "max_new_tokens": 8}
            cases[f"{model}_sample_{name}"] = case("engine", model=model, ids=ids, **options)
    return cases


def _pipeline() -> Cases:
    plain: dict[str, Any] = {"model": "plain", "texts": TEXTS}
    cases = named("pipeline", SEARCHES, **plain)
    scored = ["greedy", "beam", "n_best", "power", "stop_early", "at_least_4", "at_most_3"]
    scored += ["ends", "forced_first"]
    cases |= named("pipeline", chosen(SEARCHES, scored), "scored_", **plain, **ALL)
    cases |= named("pipeline", PROCESSED, **plain)
    samples = named("pipeline", SAMPLING, "sample_", model="plain", texts=LINES, seed=12)
    samples["sample_top_p"] |= ALL
    repeated = {"texts": ["A man"] * 4, "return_scores": True}
    samples["sample_repeated"] = samples["sample_all_tokens"] | repeated
    cases |= samples
    cases |= named("pipeline", CHOICES, **plain)
    everything = {f"return_{name}": True for name in ("alignments", "confidence", "warnings")}
    returned: Cases = {
        "everything": everything | ALL,
        "alignments": {"return_alignments": True, "num_beams": 1},
        "confidence": {"return_confidence": True, "num_return_sequences": 2},
        "warnings": {"return_warnings": True},
    }
    cases |= named("pipeline", returned, "return_", model="aligned", texts=TEXTS)
    calls: Cases = {
        "one_text": {"texts": "A man is sleeping."},
        "no_text": {"texts": []},
        "small_batches": {"batch_size": 1},
        "float32": {"pipeline": {"precision": "float32"}},
        "defaults": {"pipeline": {"num_beams": 2, **ALL}},
    }
    cases |= named("pipeline", calls, **plain)
    split = {"split_sentences": True, "source_language": "en"}
    simple = {"split_sentences": True, "sentence_splitter": "simple"}
    linked = {"return_alignments": True, "return_warnings": True}
    lines: Cases = {
        "long_lines": {"model": "limited"},
        "long_lines_scored": {"model": "limited", **ALL},
        "long_lines_n_best": {"model": "limited", "num_return_sequences": 3},
        "long_lines_split": {"model": "limited", **split},
        "split": {"model": "plain", **split},
        "split_aligned": {"model": "aligned", **linked, **split},
        "split_simply": {"model": "plain", **simple},
    }
    return cases | named("pipeline", lines, texts=[LONG, *TEXTS])


def _features() -> Cases:
    cases = named("pipeline", FEATURES, model="plain", texts=LINES, **ALL)
    for model in ("reversible", "learned"):
        features = chosen(FEATURES, ["shared_constraints", "own_prefixes"])
        shared = {"model": model, "texts": LINES, "return_scores": True}
        cases |= named("pipeline", features, f"{model}_", **shared)
    split = {"split_sentences": True, "source_language": "en", "constraints": [["Hund"]]}
    cases["constraints_split"] = case("pipeline", model="plain", texts=["A man."], **split)
    aligned = {"model": "aligned", "texts": LINES, "target_prefix": "Ein"}
    aligned |= {"return_alignments": True, "return_confidence": True}
    cases["prefix_aligned"] = case("pipeline", **aligned)
    glossary = {"glossary": {"man": "Mann", "two dogs": "zwei Hunde"}}
    inline: dict[str, Any] = {"model": "inline", "texts": LINES, **glossary}
    for mode in ("soft", "hard", "exact"):
        terms = inline | {"texts": TEXTS[:1] + LINES[1:], "term_mode": mode}
        cases[f"terms_{mode}"] = case("pipeline", **terms, **ALL)
        cases[f"terms_{mode}_n_best"] = case("pipeline", **terms, **TWO_BEAMS, **TWO)
    cases["terms_default"] = case("pipeline", **inline)
    cases["terms_untrained"] = case("pipeline", **inline | {"model": "plain"}, **ALL)
    constraints = {"constraints": [["Gras"], [], [], ["is"]]}
    cases["terms_constrained"] = cases["terms_exact"] | constraints
    cases["terms_aligned"] = case("pipeline", **inline, return_alignments=True)
    return cases


def _several_models() -> Cases:
    ensemble = {"ensemble": ["other"]}
    weighted = {"ensemble": ["other", "reverse"], "ensemble_weights": [0.6, 0.3, 0.1]}
    sampling = {"do_sample": True, "num_beams": 1, "seed": 5, "top_k": 5}
    cases: Cases = {
        "greedy": {"pipeline": ensemble, "num_beams": 1, **ALL},
        "beam": {"pipeline": ensemble, "num_return_sequences": 2, **ALL},
        "weighted": {"pipeline": weighted, **TWO, "return_scores": True},
        "constrained": {"pipeline": weighted, "constraints": [["Hund"], [], [], ["Gras"]]},
        "sample": {"pipeline": ensemble, **sampling, **ALL},
        "mbr": {"pipeline": ensemble, "mbr": "chrf", "num_beams": 4},
    }
    cases = named("pipeline", cases, "ensemble_", model="plain", texts=TEXTS)
    reverse = {"rerank_reverse": "reverse"}
    weights = {"rerank_reverse_weight": 1.0, "rerank_length_weight": -0.3}
    reranked: Cases = {
        "best": {},
        "n_best": {"num_return_sequences": 4, **ALL},
        "weighted": {**TWO, "return_scores": True, **weights},
        "constrained": {"constraints": ["Hund"], "return_scores": True},
        "prefix": {"target_prefix": "Ein", "num_return_sequences": 2},
    }
    shared: dict[str, Any] = {"model": "plain", "texts": TEXTS[:1] + LINES[1:]}
    shared["pipeline"] = reverse
    both = {"pipeline": ensemble | reverse, "return_scores": True}
    reranked["ensemble"] = both
    cases |= named("pipeline", reranked, "rerank_", **shared)
    german = {"tgt_lang": "de"}
    languages: Cases = {
        "tag": german,
        "tag_scored": {"src_lang": "en", "tgt_lang": "de", **TWO, **ALL},
        "tag_default": {"pipeline": german},
    }
    cases |= named("pipeline", languages, model="tagged", texts=TEXTS)
    written = [">>fr<< A man", ">>de<< Grass"]
    cases["tag_written"] = case("pipeline", model="tagged", texts=written)
    forced: Cases = {
        "greedy": {"num_beams": 1},
        "beam": {"num_beams": 3, "num_return_sequences": 3, **ALL},
        "float32": {"pipeline": {"precision": "float32"}, "num_beams": 2},
    }
    nllb: dict[str, Any] = {"model": "nllb", "texts": ["Grass", "A man", ""]}
    nllb |= {"src_lang": "fra_Latn", "tgt_lang": "deu_Latn", "max_new_tokens": 6}
    return cases | named("pipeline", forced, "nllb_", **nllb)


HTML = (
    "<html><body><h1>A man</h1><p>Two <b>dogs</b> run. <a href='x'>Grass</a> is "
    "{green}.</p><p> </p></body></html>"
)
MARKDOWN = "# A man\n\nTwo **dogs** run. A [man](x.html) is `sleeping`.\n\n- Grass\n- Two dogs\n"
SUBTITLES = (
    "1\n00:00:01,000 --> 00:00:02,000\nA man\nis sleeping.\n\n2\n00:00:03,000 --> "
    "00:00:04,000\nGrass\n"
)


def _documents() -> Cases:
    glossary = {"man": "Mann", "dogs": "Hunde"}
    cases: Cases = {
        "html": {"text": HTML, "format": "html"},
        "html_greedy": {"text": HTML, "format": "html", "num_beams": 1},
        "markdown": {"text": MARKDOWN, "format": "markdown"},
        "srt": {"text": SUBTITLES, "format": "srt"},
        "glossary": {"text": HTML, "format": "html", "glossary": glossary},
    }
    plain = named("document", cases, "plain_", model="plain")
    aligned = chosen(cases, ["html", "markdown", "srt"])
    return plain | named("document", aligned, "aligned_", model="aligned")


TEXT_FILE = "A man is sleeping.\nTwo dogs run.\n\nGrass\n"
FILES = {
    "text": TEXT_FILE,
    "long": LONG + "\n",
    "targets": "Ein Mann\nZwei Hunde\n\nGras\n",
    "prefixes": "Ein\n\n\nGras\n",
    "tabs": "A man is sleeping.\tMann\nTwo dogs run.\n\nGrass\tGras\tgrün\n",
    "terms": "man\tMann\ntwo dogs\tzwei Hunde\n",
    "page": HTML,
    "markdown": MARKDOWN,
}
# Flags of commands, as a shell splits them.
TRANSLATED = {
    "default": "{plain}",
    "greedy": "{plain} --num_beams 1 --max_new_tokens 5",
    "json": "{aligned} --json",
    "json_n_best": "{plain} --json --num_return_sequences 2",
    "n_best": "{plain} --n_best 3 --length_penalty 1.4",
    "alignments": "{aligned} --alignments",
    "several": "{plain} --num_return_sequences 2 --batch_size 1",
    "sample": "{plain} --do_sample --seed 5 --top_k 5 --temperature 0.9",
    "sample_nucleus": "{plain} --do_sample --seed 6 --top_k 0 --top_p 0.8 --n_best 2",
    "sample_cutoff": "{plain} --do_sample --seed 6 --epsilon_cutoff 0.02",
    "mbr": "{plain} --mbr chrf --mbr_samples 5 --seed 9 --do_sample",
    "mbr_n_best": "{plain} --mbr bleu --num_beams 3",
    "constraint": "{plain} --constraint Hund 'ein Gras' --n_best 2",
    "tab_constraints": "{plain} --tab_constraints --n_best 1",
    "prefix": "{plain} --target_prefix Ein --n_best 2",
    "prefixes": "{plain} --target_prefixes {prefixes} --n_best 1",
    "alternatives": "{plain} --alternatives 3",
    "glossary": "{inline} --glossary {terms} --n_best 1",
    "glossary_exact": "{inline} --glossary {terms} --term_mode exact --n_best 1",
    "ensemble": "{plain} --ensemble {other} --ensemble_weights 0.7 0.3 --n_best 2",
    "rerank": "{plain} --rerank_reverse {reverse} --rerank_reverse_weight 0.8 --n_best 2",
    "tagged": "{tagged} --target_language de",
    "split": "{plain} --split_sentences",
    "float32": "{plain} --precision float32",
}
SCORED = "--source {text} --target {targets}"
PLAIN_SCORES = f"score {{plain}} {SCORED}"
# Other commands.
COMMANDS = {
    "long_lines": "translate {limited} --input {long}",
    "sentences": "translate {plain} 'A man is sleeping.' Grass",
    "html": "translate {plain} --input {page} --format html",
    "markdown": "translate {aligned} --input {markdown} --format markdown",
    "score": PLAIN_SCORES,
    "score_json": f"{PLAIN_SCORES} --json --max_tokens 20",
    "score_ensemble": f"{PLAIN_SCORES} --ensemble {{other}}",
    "score_tagged": f"score {{tagged}} {SCORED} --target_language fr --json",
    "score_lsh": f"score {{lsh}} {SCORED}",
}


def _commands() -> Cases:
    inputs = {"tab_constraints": "{tabs}", "split": "{long}"}
    cases: Cases = {}
    for name, flags in TRANSLATED.items():
        cases[name] = command(f"translate {flags} --input {inputs.get(name, '{text}')}")
    return cases | {name: command(line) for name, line in COMMANDS.items()}


def command(line: str) -> dict[str, Any]:
    return case("command", arguments=shlex.split(line), files=FILES)


def _service() -> Cases:
    sampling = {"do_sample": True, "seed": 4}
    bodies: Cases = {
        "default": {},
        "one_text": {"text": "A man is sleeping."},
        "n_best": {"num_return_sequences": 3},
        "scores": {"return_scores": True, "num_return_sequences": 2},
        "tokens": {"return_scores": True, "return_tokens": True},
        "warnings": {"return_warnings": True},
        "sample": {**sampling, "temperature": 0.8, "top_k": 20, "return_scores": True},
        "samples": {**sampling, "top_p": 0.8, "top_k": 0, "num_return_sequences": 3},
        "sample_cutoff": {"do_sample": True, "seed": 9, "epsilon_cutoff": 0.03},
        "mbr": {"mbr": "chrf", "mbr_samples": 6, "seed": 9, "do_sample": True},
        "mbr_bleu": {"mbr": "bleu", "seed": 8},
        "constraints": {"constraints": ["Hund"], "return_scores": True},
        "own_constraints": {"constraints": [["Hund"], [], ["Gras"], []], **TWO},
        "prefix": {"target_prefix": "Ein", "return_scores": True},
        "alternatives": {"alternatives": 3, "target_prefix": "Ein"},
        "glossary": {"glossary": {"man": "Mann", "two dogs": "zwei Hunde"}},
        "split": {"text": [LONG], "split_sentences": True},
        "html": {"text": [HTML], "format": "html"},
        "stream": {"stream": True, "return_scores": True},
    }
    cases = requests(bodies)
    cases["features"] = case("service", model="aligned", path="/models/model-aligned")
    returned = ("scores", "alignments", "confidence", "warnings")
    body: dict[str, Any] = {f"return_{name}": True for name in returned}
    cases["everything"] = case("service", model="aligned", body=body | {"text": TEXTS})
    for mode in ("soft", "hard", "exact"):
        body = {"text": LINES, "glossary": {"man": "Mann"}, "term_mode": mode}
        cases[f"terms_{mode}"] = case("service", model="inline", body=body)
    body = {"text": LINES, "src_lang": "en", "tgt_lang": "fr", "return_scores": True}
    cases["languages"] = case("service", model="tagged", body=body)
    body = {"q": ["A man", "Grass"], "source": "en", "target": "de"}
    cases["libretranslate"] = case("service", model="plain", flags=DIRECTION, body=body)
    body = {"text": LINES, "num_return_sequences": 2, "return_scores": True}
    flags = ["--ensemble", "{other}", "--ensemble_weights", "0.7", "0.3"]
    cases["ensemble"] = case("service", model="plain", flags=flags, body=body)
    flags = ["--rerank_reverse", "{reverse}"]
    cases["rerank"] = case("service", model="plain", flags=flags, body=body)
    body = {"text": LINES, "rerank_length_weight": 1.5}
    cases["rerank_best"] = case("service", model="plain", flags=flags, body=body)
    return cases


DIRECTION = ["--direction", "en-de"]


def requests(bodies: Cases, prefix: str = "") -> Cases:
    """Return requests of a service, whose text is `LINES` by default."""
    cases: Cases = {}
    for name, body in bodies.items():
        cases[prefix + name] = case("service", model="plain", body={"text": LINES} | body)
    return cases


def _errors() -> Cases:
    precise = {"precision": "float32"}
    unweighted = {"ensemble": ["other"], "ensemble_weights": [1.0]}
    reranked = {"rerank_reverse": "reverse"}
    options: Cases = {
        "inputs": {"texts": ["A", 3]},
        "mapping": {"texts": {"a": "b"}},
        "batch_size": {"batch_size": 0},
        "unknown_option": {"num_beam": 3},
        "beams": {"num_beams": 0},
        "penalty_type": {"length_penalty_type": "gnmt"},
        "margin": {"max_new_tokens_beyond_source": -1},
        "too_many_returned": {"num_return_sequences": 9},
        "scored_repetition_penalty": {"return_scores": True, "repetition_penalty": 2.0},
        "sampled_beams": {"do_sample": True, "num_beams": 4, "seed": 1},
        "seed": {"do_sample": True, "num_beams": 1, "seed": "a"},
        "top_p": {"do_sample": True, "num_beams": 1, "seed": 1, "top_p": 2.0},
        "alignments": {"return_alignments": True},
        "confidence": {"return_confidence": True},
        "empty_constraint": {"constraints": [""]},
        "no_list_of_constraints": {"constraints": "Hund"},
        "constraints_of_texts": {"constraints": [["a"], ["b"], ["c"]]},
        "greedy_constraints": {"constraints": ["a"], "num_beams": 1},
        "prefixes_of_texts": {"target_prefix": ["a", "b", "c"]},
        "alternatives": {"alternatives": 0},
        "alternatives_of_lines": {"texts": ["A\nB"], "alternatives": 2},
        "mbr": {"mbr": "ter"},
        "mbr_samples": {"mbr_samples": 3},
        "rerank_weight": {"rerank_reverse_weight": 0.5},
        "languages": {"tgt_lang": "de"},
        "glossary": {"glossary": {}},
        "term_mode": {"term_mode": "soft"},
        "untrained_terms": {"glossary": {"man": "Mann"}, "term_mode": "soft"},
        "splitter": {"split_sentences": True, "sentence_splitter": "missing"},
        "precision": {"pipeline": {"precision": "float33"}},
        "precise_repetition": {"pipeline": precise, "repetition_penalty": 2.0},
        "ensemble": {"pipeline": {"ensemble": []}},
        "ensemble_weights": {"pipeline": unweighted},
        "ensemble_vocabulary": {"pipeline": {"ensemble": ["tagged"]}},
        "rerank_greedy": {"pipeline": reranked, "num_beams": 1},
        "rerank_mbr": {"pipeline": reranked, "mbr": "chrf"},
    }
    plain: dict[str, Any] = {"of": "pipeline", "model": "plain", "texts": LINES[:2]}
    cases = named("error", options, "pipeline_", **plain)
    tagged = {"of": "pipeline", "model": "tagged", "texts": LINES}
    cases["pipeline_no_language"] = case("error", **tagged)
    nllb: dict[str, Any] = {"of": "pipeline", "model": "nllb", "texts": LINES}
    nllb |= {"src_lang": "fra_Latn", "tgt_lang": "deu_Latn", "target_prefix": "A"}
    cases["pipeline_forced_prefix"] = case("error", **nllb)
    cases["pipeline_unknown_language"] = case("error", **tagged, tgt_lang="it")
    generated: Cases = {
        "option": {"num_beam": 3},
        "beams": {"num_beams": 0},
        "penalty_type": {"length_penalty_type": "gnmt"},
    }
    shared = {"of": "generate", "model": "plain", "ids": SOURCES}
    cases |= named("error", generated, "generate_", **shared)
    refused = {
        "no_model": "",
        "no_folder": "{text}-missing A",
        "flag": "{plain} A --num_beam 2",
        "number": "{plain} A --num_beams two",
        "beams": "{plain} A --num_beams 0",
        "n_best": "{plain} A --n_best 0",
        "both_counts": "{plain} A --n_best 2 --num_return_sequences 2",
        "batch_size": "{plain} A --batch_size 0",
        "penalty": "{plain} A --length_penalty nan",
        "prefixes": "{plain} A --target_prefixes {prefixes}",
        "alternatives": "{plain} A --alternatives 2 --n_best 2",
        "alignments": "{plain} A --alignments",
        "mbr": "{plain} A --mbr ter",
        "rerank_weight": "{plain} A --rerank_length_weight 1",
        "language": "{tagged} A --target_language it",
        "no_language": "{plain} A --target_language de",
        "format": "{plain} --input {page} --format rtf",
        "format_n_best": "{plain} --input {page} --format html --n_best 2",
        "precision": "{plain} A --precision float33",
        "ensemble_weights": "{plain} A --ensemble_weights 1",
        "term_mode": "{plain} A --glossary {terms} --term_mode soft",
        "two_inputs": "{plain} A --input {text}",
    }
    for name, line in refused.items():
        cases[f"command_{name}"] = command(f"translate {line}")
    bodies: Cases = {
        "no_text": {"text": None},
        "number": {"text": [3]},
        "entry": {"num_beams": 3},
        "count": {"num_return_sequences": 0},
        "many": {"num_return_sequences": 99},
        "flag": {"return_scores": 1},
        "alignments": {"return_alignments": True},
        "confidence": {"return_confidence": True},
        "temperature": {"temperature": 0.5},
        "negative_temperature": {"do_sample": True, "temperature": -1},
        "seed": {"do_sample": True, "seed": 2**70},
        "constraints": {"constraints": "Hund"},
        "sampled_constraints": {"constraints": ["Hund"], "do_sample": True},
        "empty_constraint": {"constraints": [""]},
        "prefixes": {"target_prefix": ["Ein"]},
        "alternatives": {"alternatives": 0},
        "counted_alternatives": {"alternatives": 2, "num_return_sequences": 2},
        "mbr": {"mbr": "ter"},
        "many_samples": {"mbr": "chrf", "mbr_samples": 999},
        "rerank_weight": {"rerank_reverse_weight": 0.5},
        "language": {"tgt_lang": "de"},
        "glossary": {"glossary": ["man"]},
        "term_mode": {"glossary": {"man": "Mann"}, "term_mode": "soft"},
        "format": {"format": "rtf"},
        "scored_format": {"format": "html", "return_scores": True},
    }
    cases |= requests(bodies, "service_")
    body = {"text": "A", "tgt_lang": "it"}
    cases["service_unknown_language"] = case("service", model="tagged", body=body)
    return cases


def _attacks() -> Cases:
    """Return requests that a service refuses; most have several mistakes of which it names one."""
    neutral = {"num_return_sequences": None, "return_scores": False}
    neutral |= {"constraints": [], "model": None}
    bodies: Cases = {
        "many_texts": {"text": ["a"] * 300},
        "many_characters": {"text": "a" * 5001},
        "many_tokens": {"text": "\U0001f642" * 1200},
        "many_hypotheses": {"num_return_sequences": 9},
        "no_hypotheses": {"num_return_sequences": 0},
        "half_a_hypothesis": {"num_return_sequences": 1.5},
        "true_hypotheses": {"num_return_sequences": True},
        "unknown_entry": {"texts": "a", "return_scores": 1},
        "stream": {"stream": 1, "return_scores": 1},
        "number": {"text": 7},
        "numbers": {"text": ["a", 7]},
        "null": {"text": None},
        "object": {"text": {}},
        "no_texts": {"text": []},
        "format": {"format": 3},
        "unknown_model": {"model": "other"},
        "listed_model": {"model": ["model-plain"]},
        "named_model": {"model": "model-plain"},
        "terms_in_samples": {"glossary": {"a": "b"}, "do_sample": True},
        "term_of_a_number": {"glossary": {"a": 1}},
        "nested_term": {"glossary": {"a": [[[]]]}},
        "long_language": {"src_lang": "a" * 41},
        "neutral": neutral,
        "key": {"api_key": "a"},
        "question": {"q": "Grass"},
        "streamed_number": {"text": [1], "stream": True},
        "document_with_a_prefix": {"format": "html", "target_prefix": "a"},
    }
    cases = requests(bodies)
    contents = {
        "empty": "",
        "brace": "{",
        "list": "[]",
        "null_body": "null",
        "number_body": "3",
        "no_text": '{"texts": "a"}',
        "nan": '{"text": "a", "num_return_sequences": NaN}',
        "infinity": '{"text": Infinity}',
        "encoding": '{"text": "\xff"}',
        "surrogate": r'{"text": ["a", "\ud800"]}',
        "deep": "[" * 5000,
        "enormous_integer": '{"text": "a", "rerank_reverse_weight": 1%s}' % ("0" * 999),
        "enormous_float": '{"text": "a", "rerank_reverse_weight": 1e999}',
        "repeated": '{"text": "a", "text": 3}',
        "large": '{"text": "%s"}' % ("a" * 1_000_000),
    }
    for name, raw in contents.items():
        cases[name] = case("service", model="plain", raw=raw)
    questions: Cases = {
        "": {},
        "_french": {"target": "fr"},
        "_no_target": {"target": None},
        "_negative": {"alternatives": -1},
        "_many": {"alternatives": 99},
        "_alternatives": {"alternatives": "1"},
        "_number": {"q": 1},
        "_format": {"format": "rtf"},
        "_unknown_entry": {"secret": "a"},
        "_auto": {"source": "auto"},
    }
    for name, entries in questions.items():
        body = {"q": "A man", "source": "en", "target": "de", **entries}
        question = case("service", model="plain", flags=DIRECTION, body=body)
        cases[f"question{name}" if name else "plain_question"] = question
    for path in ("/models/other", "/languages", "/nothing", "/translate", "/metrics"):
        cases[f"get{path.replace('/', '_')}"] = case("service", model="plain", path=path)
    for raw in ("", "[]", '{"q": ["a"]}', '{"text": "a"}'):
        cases[f"detect_{raw}"] = case("service", model="plain", path="/detect", raw=raw)
    return cases


# Each subject has a file of answers. Messages of errors may be renewed by themselves.
SUBJECTS: dict[str, Cases] = {
    "generate": _generate(),
    "long_models": _long(),
    "prompts": _prompts(),
    "engine": _engine(),
    "pipeline": _pipeline(),
    "features": _features(),
    "several_models": _several_models(),
    "documents": _documents(),
    "commands": _commands(),
    "service": _service(),
    "attacks": _attacks(),
    "errors": _errors(),
}
