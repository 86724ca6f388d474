"""Documents need no model of this package: any function that translates sentences does."""

import subprocess
import sys
from pathlib import Path

import pytest

from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.extensions.documents import translate_document

ROOT = Path(__file__).parents[4]
WITHOUT_TORCH = """
import sys


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "tokenizers"):
            raise ImportError(f"documents import {name}")


sys.meta_path.insert(0, Refusing())
sys.argv = ["vanilla-transformer"]  # which registers no models
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.extensions.documents import Translation, translate_document

words = {"dogs": "Hunde", "sleep": "schlafen"}


def translate(sentences):
    translations = []
    for sentence in sentences:
        text = " ".join(words.get(word, word) for word in sentence.text.split())
        translations.append(Translation(text))
    return translations


for format, text in {
    "html": "<p>dogs <code>a.py</code> sleep</p>",
    "po": 'msgid "dogs %s sleep"\\nmsgstr ""\\n',
    "markdown": "dogs `a.py` sleep\\n",
}.items():
    print(translate_document(text, format, translate, find_splitter("abbreviations")).strip())
"""


def test_documents_import_no_torch():
    command = [sys.executable, "-c", WITHOUT_TORCH]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "<p>Hunde <code>a.py</code> schlafen</p>",
        "#, fuzzy",
        'msgid "dogs %s sleep"',
        'msgstr "Hunde %s schlafen"',
        "Hunde `a.py` schlafen",
    ]


def shout(sentences):
    """Translate as an engine does that knows of kept spans."""
    translations = []
    for sentence in sentences:
        text, end = "", 0
        for start, stop in sentence.kept or ():
            text += sentence.text[end:start].upper() + sentence.text[start:stop]
            end = stop
        translations.append(Translation(text + sentence.text[end:].upper()))
    return translations


def test_an_engine_that_keeps_spans_gets_them_with_each_sentence():
    seen = []

    def translate(sentences):
        seen.extend(sentences)
        return shout(sentences)

    text = "<p>see <kbd>Ctrl</kbd> at https://a.example/b <b>now</b></p>"
    translated = translate_document(text, "html", translate, str.splitlines)
    assert translated == "<p>SEE <kbd>Ctrl</kbd> AT https://a.example/b <b>NOW</b></p>"
    (sentence,) = seen
    assert isinstance(sentence, Sentence) and sentence.tokens == ()
    kept = [sentence.text[start:end] for start, end in sentence.kept]
    assert kept == ["Ctrl", "https://a.example/b"]


@pytest.mark.parametrize("lose", [str.swapcase, lambda text: "x", lambda text: ""])
def test_documents_keep_text_that_an_engine_loses(lose):
    def translate(sentences):
        return [Translation(lose(sentence.text)) for sentence in sentences]

    text = "<p>see <kbd>Ctrl</kbd> at https://a.example/b now</p>"
    translated = translate_document(text, "html", translate, str.splitlines)
    assert "<kbd>Ctrl</kbd>" in translated and "https://a.example/b" in translated
