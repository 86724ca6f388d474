"""The page on the architecture: a sentence, a document, a request and a batch pass its files in its
order, by the calls that it names.
"""

import re
import sys
import threading
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import vanilla_transformer
from tests.tiny import write_tiny_corpus
from tests.tiny_runs import flags
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.extensions.documents.translation import DocumentTranslator
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.training.validation import loss_only

PACKAGE = Path(vanilla_transformer.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"


def rows(heading):
    """Return the file and the call of each row of a table of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", section, re.MULTILINE)


@pytest.fixture
def follow():
    """Return a function that calls another one, and returns when each call of the package came
    first.
    """

    def follow(function):
        calls = {}

        def record(frame, event, argument):
            if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
                path = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
                calls.setdefault((path, frame.f_code.co_qualname), len(calls))

        threading.setprofile(record)
        sys.setprofile(record)
        try:
            function()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return calls

    return follow


def check_order(table, calls):
    assert len(table) > 7 and not [row for row in table if row not in calls]
    assert sorted(table, key=calls.get) == table


def test_sentence_passes_the_files_of_the_page(follow, tiny_model, tiny_tokenizer):
    translate = TranslationPipeline(tiny_model, tiny_tokenizer, compile=False)
    calls = follow(lambda: translate("A man is sleeping."))
    check_order(rows("A sentence"), calls)


def test_document_passes_the_files_of_the_page(follow, tiny_model, tiny_tokenizer):
    pipeline = TranslationPipeline(tiny_model, tiny_tokenizer, compile=False)
    translate = DocumentTranslator(pipeline, "en")
    calls = follow(lambda: translate(["<p>A <b>man</b> is sleeping. Two dogs run.</p>"], "html"))
    check_order(rows("A document"), calls)


def test_request_passes_the_files_of_the_page(follow, tiny_model, tiny_tokenizer):
    pipeline = TranslationPipeline(tiny_model, tiny_tokenizer, compile=False)
    service = create_service(translate_with(pipeline))

    def ask():
        with TestClient(service) as client:
            client.post("/translate", json={"text": "A man is sleeping."}).raise_for_status()

    check_order(rows("A request over HTTP"), follow(ask))


def test_batch_passes_the_files_of_the_page(follow, tmp_path):
    limits = {
        "max_steps": 2,
        "save_steps": 1,
        "cache_dir": tmp_path / "cache",
    }  # without text that others have cleaned
    words = flags(write_tiny_corpus(tmp_path), tmp_path / "out", **limits)
    calls = follow(lambda: train(parse_recipe(words), evaluate=loss_only))
    check_order(rows("A training batch"), calls)
    first_step = calls["training/train_step.py", "train_step"]
    before = {
        path for (path, call), number in calls.items() if number < first_step and call != "<module>"
    }
    assert len(before) <= 61, sorted(before)
