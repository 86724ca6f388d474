"""A wrong value of an option has one message, whether it comes from Python, the command line or an
HTTP request.
"""

import contextlib
import json
import re

import pytest
from fastapi.testclient import TestClient

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.cli.flags import FLAG_NAMES
from vanilla_transformer.cli.translate import TranslateArguments
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.options import (
    FLAG,
    JSON,
    OptionError,
    TranslationOptions,
    options_of,
)
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.user_input.schemas import parts_of

KINDS = (bool, int, float, str, list)
PHRASES = "a list of phrases, or a list of phrases for each text"
YES_OR_NO = dict.fromkeys(
    ("return_tensors", "return_text", "clean_up_tokenization_spaces", "return_warnings"),
    (1, "true or false, got 1."),
)
for name in ("scores", "tokens", "alignments", "confidence"):
    YES_OR_NO[f"return_{name}"] = (1, "true or false, got 1.")
# Option → a wrong value, and the words for it.
WRONG = {
    "num_beams": (0, "an integer from 1 to 500, got 0."),
    "num_return_sequences": (0, "an integer from 1 to 500, got 0."),
    "max_new_tokens_beyond_source": (-1, "an integer from 0 to 10,000, got -1."),
    "max_new_tokens": (0, "an integer from 1 to 10,000, got 0."),
    "max_length": (0, "an integer from 1 to 10,000, got 0."),
    "min_new_tokens": (-1, "an integer from 0 to 10,000, got -1."),
    "no_repeat_ngram_size": (-1, "an integer from 0 to 1,000, got -1."),
    "length_penalty": (float("inf"), "a number in [-100, 100], got inf."),
    "length_penalty_type": ("gnmt", "'power' or 'wu', got 'gnmt'."),
    "early_stopping": ("soon", "True, False or 'never', got 'soon'."),
    **dict.fromkeys(("bad_words_ids", "suppress_tokens"), (3, "a list of integers, got 3.")),
    **dict.fromkeys(("do_sample", "renormalize_logits"), ("x", "true or false, got 'x'.")),
    "temperature": ("x", "a number, got 'x'."),
    "top_k": ("x", "a number, got 'x'."),
    "top_p": ([0.5], "a number, got [0.5]."),
    "epsilon_cutoff": (True, "a number, got True."),
    "seed": ("x", "an integer, got 'x'."),
    "target_prefix": (3, "a string, or one for each text, got 3."),
    "draft": (3, "text, or one for each text, None for no draft, got 3."),
    "draft_bias": (0.7, "a number in [0, 0.5], got 0.7."),
    "alternatives": (0, "an integer from 1 to 500, got 0."),
    "constraints": ("Hund", f"{PHRASES}, got 'Hund'."),
    "term_mode": ("firm", "one of 'soft', 'hard', 'exact', got 'firm'."),
    "mbr": ("comet", "one of 'chrf', 'bleu', got 'comet'."),
    "mbr_samples": (1, "an integer from 2 to 10,000, got 1."),
    "rerank_reverse_weight": (-1.0, "a number in [0, 100], got -1.0."),
    "rerank_length_weight": (float("inf"), "a number in [-100, 100], got inf."),
    "src_lang": (3, "the code of a language, got 3."),
    "tgt_lang": (["de"], "the code of a language, got ['de']."),
    "protect": (1, "true or false, got 1."),
    "split_sentences": ("x", "true or false, got 'x'."),
    "sentence_splitter": (3, "a function or the name of one, got 3."),
    **YES_OR_NO,
    "stop_sequence": (3, "text, got 3."),
}
# Filters of sampling out of the library's range, and columns that do not fit the texts.
SAMPLING = {"do_sample": True}
RANGE = "has to be a float > 0 and < 1, but is 2.0"
ALTERNATIVES = {"alternatives": 2, "num_return_sequences": 2}
TWO_PREFIXES = "`target_prefix` must be a string, or one for each text, but there are 2 for 1"
TOO_SHORT = {"constraints": ["Hunde"], "num_beams": 2, "max_new_tokens": 2}
NEED_BEAMS = "Constraints need beam search: `num_beams`"
ONE_EACH = "`alternatives` are completed by one search each. Leave"
UNFIT = [
    (
        SAMPLING | {"temperature": -1.0},
        "`temperature` (=-1.0) has to be a strictly positive float",
    ),
    (SAMPLING | {"top_k": -1}, "`top_k` has to be a"),
    (SAMPLING | {"top_p": 2.0}, f"`top_p` {RANGE}"),
    (SAMPLING | {"epsilon_cutoff": 2.0}, f"`epsilon_cutoff` {RANGE}"),
    ({"mbr_samples": 4}, "`mbr_samples` needs `mbr`, one of 'chrf', 'bleu'."),
    (
        {"term_mode": "exact"},
        "`term_mode` must be given with a `glossary`, got 'exact' without one.",
    ),
    (ALTERNATIVES, f"{ONE_EACH} `num_"),
    (
        {"mbr": "chrf", "num_return_sequences": 2},
        "With `mbr` there is one translation. Leave out `num_return_sequ",
    ),
    ({"constraints": [" "]}, "A constraint must have a word, got ' '."),
    (
        {"constraints": [["a"], ["b"]]},
        f"`constraints` must be {PHRASES}, but there are 2 for 1 texts.",
    ),
    ({"constraints": [["a", 3]]}, "A constraint must be a string, got 3."),
    ({"constraints": ["a"], "num_beams": 1}, f"{NEED_BEAMS} must be 2 or more"),
    (TOO_SHORT, "A translation may have 2 tokens, but its con"),
    ({"target_prefix": ["a", "b"]}, TWO_PREFIXES),
]


def constrained_by(*phrases, **options):
    return {"constraints": [*phrases], **options}


# What texts ask for and cannot have, with a beam of 3 and 12 new tokens.
ONE_LINE = "must be one line or sentence, got"
BLANK = f"A text with constraints {ONE_LINE} a blank one."
TOO_LONG = "The constraints of a text may have at most 256 tokens, got 301."
NO_LIST = "`force_words_ids` must be a list with a list of token ids each, got 5."
NO_TOKENS = "A constraint must have tokens of the vocabulary besides EOS, got 2."
ONE_DIRECTION = "The model translates from one language to one other. Leave the languages out."
PENALTY = {"repetition_penalty": 1.2}
REFUSED = [
    (["a", "b"], constrained_by(["a"], "b"), "got 'b' for a text"),
    ("a", constrained_by("rote  Katz*"), "got 'rote  Katz'. Write 'rote Katz'."),
    ("a\nb", constrained_by("a"), f"A text with constraints {ONE_LINE} one of 2."),
    ("", constrained_by(["a"]), BLANK),
    ("-", constrained_by(["a"]), BLANK),
    ("a", constrained_by("a", do_sample=True, num_beams=1), NEED_BEAMS),
    ("a", constrained_by("x" * 300), TOO_LONG),
    ("a", {"force_words_ids": [5]}, NO_LIST),
    ("a", {"force_words_ids": [[[5], [6]]]}, "got [[5], [6]]. Alternatives are not supported."),
    ("a", {"force_words_ids": [[2]]}, NO_TOKENS),
    (
        "a",
        constrained_by("a", repetition_penalty=2.0),
        "With `constraints`, greedy and beam search must do",
    ),
    (["A.", " "], {"target_prefix": ["B", "C"]}, "A blank text must not have a target prefix"),
    ("A.", {"target_prefix": "A man " * 9}, "must be shorter than the 12 tokens of the limit"),
    ("A.\nB.", {"alternatives": 2}, f"A text with alternatives {ONE_LINE} one of 2."),
    ("A.", {"alternatives": 2, "seed": 1}, f"{ONE_EACH} `seed` out."),
    ("A.", {"target_prefix": "A", **PENALTY}, "With `target_prefix`, greedy and"),
    (
        "A",
        {"return_scores": True, "do_sample": True},
        "With `return_scores`, sampling needs `num_beams=1`, got 3",
    ),
    ("A", {"tgt_lang": "de"}, ONE_DIRECTION),
]
for phrase in ("rote  Katze", "rote\tKatze", "rote\nKatze", " rote\xa0Katze "):
    words = f"single spaces between words, got {phrase!r}. Write 'rote Katze'."
    REFUSED.append(("a", constrained_by(phrase), words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    return str(save_model_folder(tiny_model(), tiny_tokenizer(), path))


@pytest.fixture(scope="module")
def pipeline(folder):
    return load_pipeline(folder)


@pytest.fixture(scope="module")
def service(pipeline):
    with TestClient(create_service(translate_with(pipeline), known=ENTRIES)) as service:
        yield service


def kinds_of(name):
    """Return the kinds of values that the flag of an option takes."""
    parts = parts_of(TranslateArguments.model_fields[FLAG_NAMES.get(name, name)])
    return tuple(part for part in parts if part in KINDS)


def flags_of(options):
    """Return flags for options, or None if one has no flag for such a value."""
    flags = []
    for name, value in options.items():
        if name not in options_of(FLAG):
            return None
        if not isinstance(value, list if name == "constraints" else kinds_of(name)):
            return None
        if isinstance(value, list) and not all(isinstance(part, str) for part in value):
            return None
        words = value if isinstance(value, list) else [str(value)]
        flags += [f"--{FLAG_NAMES.get(name, name)}", *words]
    return flags


def refusals(options, pipeline, folder, service, capsys):
    """Yield the message of each door that knows the options."""
    with pytest.raises(ValueError) as error:
        pipeline(["A man"], **options)
    yield str(error.value)
    flags = flags_of(options)
    if flags is not None:
        assert main(["translate", folder, "A man", "--quiet", *flags]) == 2
        yield capsys.readouterr().err.splitlines()[-1].removeprefix("error: ")
    if options.keys() <= options_of(JSON).keys():
        body = json.dumps({"text": ["A man"], **options}).replace("Infinity", "1e999")
        answer = service.post("/translate", content=body)
        assert answer.status_code == 422
        yield answer.json()["detail"]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values_have_one_message_everywhere(name, pipeline, folder, service, capsys):
    value, words = WRONG[name]
    messages = [*refusals({name: value}, pipeline, folder, service, capsys)]
    assert messages == [f"`{name}` must be {words}"] * len(messages)
    with pytest.raises(OptionError):
        pipeline("A man", **{name: value})


def test_each_declared_check_has_a_wrong_value():
    def refuses(name):
        with contextlib.suppress(OptionError):
            return TranslationOptions(**{name: object()}) is None
        return True

    assert {*WRONG} == {name for name in options_of() if refuses(name)} - {"glossary"}


@pytest.mark.parametrize(("options", "words"), UNFIT, ids=lambda value: str(value)[:40])
def test_options_that_do_not_fit_have_one_message(
    options, words, pipeline, folder, service, capsys
):
    messages = [*refusals(options, pipeline, folder, service, capsys)]
    assert len({message[:150] for message in messages}) == 1 < len(messages)
    assert messages[0].startswith(words)


@pytest.mark.parametrize(("texts", "options", "words"), REFUSED)
def test_pipeline_refuses_what_texts_cannot_have(texts, options, words, pipeline):
    with pytest.raises(OptionError, match=re.escape(words)) as error:
        pipeline(texts, **{"num_beams": 3, "max_new_tokens": 12} | options)
    assert "\n" not in str(error.value)
