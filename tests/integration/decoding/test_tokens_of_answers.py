"""The tokens of an answer join to its text, through the pipeline, the command line and HTTP."""

import copy
import json

import pytest
from fastapi.testclient import TestClient

from tests.closeness import close_to
from tests.tiny import tiny_model
from tests.translation import joined
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.serving.features import RETURNED
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.loading.model_folders import save_model_folder

TEXTS = [
    "A man is sleeping.",
    "Two dogs.\n\n  A man.\t\n(1)\n",
    " \u00a0Two dogs run. A man sleeps! ",
    "Dogs https://a.example/x?y=1 run to {name}, 12,345.60 🙂.",
    "https://a.example/x?y=1\n{name} runs\n🙂 🙂",
    "A <b>big</b> dog &amp; a man<br/>run",
    "Dogs {n, plural, one {# man. A man.} other {# men's {x}}} run.",
    "-",
    "",
    " \n",
]
ALL = {"return_tokens": True, "return_scores": True}


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_tokens([f"<ph{number}>" for number in range(4)])
    model = tiny_model(vocab_size=len(tokenizer))
    return TranslationPipeline(model, tokenizer, compile=False, num_beams=2, max_new_tokens=12)


def assert_tokens_join(text, tokens, total):
    assert joined(tokens) == text
    assert sum(token["log_probability"] for token in tokens) == close_to(total)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_return_sequences": 2, "split_sentences": True},
        {"protect": False, "clean_up_tokenization_spaces": True},
        {"glossary": {"dogs": "Hunde", "man": "Mann"}, "term_mode": "hard"},
    ],
    ids=str,
)
def test_tokens_of_the_pipeline_join_to_the_text(translate, options):
    for answers in translate(TEXTS, **ALL, **options):
        for answer in answers if isinstance(answers, list) else [answers]:
            assert_tokens_join(
                answer["translation_text"], answer["tokens"], answer["log_probability"]
            )


def test_tokens_of_the_command_line_and_of_the_service_join_to_the_text(
    translate, tmp_path, capsys
):
    folder = str(save_model_folder(translate.model, translate.tokenizer, tmp_path / "model"))
    flags = [
        "--json",
        "--quiet",
        "--num_beams",
        "2",
        "--num_return_sequences",
        "2",
        "--max_new_tokens",
        "12",
    ]
    assert main(["translate", folder, *TEXTS, *flags]) == 0
    printed = [json.loads(line)["translations"] for line in capsys.readouterr().out.splitlines()]
    service = create_service(translate_with(translate), known=[*ENTRIES, *RETURNED])
    with TestClient(service) as client:
        body = {"text": TEXTS, "num_return_sequences": 2, **ALL}
        served = client.post("/translate", json=body).json()["translations"]
    for rows in (printed, served):
        assert [len(row) for row in rows] == [2] * len(TEXTS)
        for each in (each for row in rows for each in row):
            assert_tokens_join(each["text"], each["tokens"], each["log_probability"])


def test_copied_text_is_a_token_by_itself(translate):
    (one,), (both,) = translate("A man.", **ALL), translate("-\nA man.\n(1)\n", **ALL)
    first, *rest = one["tokens"]
    assert both["tokens"] == [
        {"text": "-", "log_probability": 0.0},
        {**first, "text": f"\n{first['text']}"},
        *rest,
        {
            "text": both["translation_text"].removeprefix(f"-\n{one['translation_text']}"),
            "log_probability": 0.0,
        },
    ]
