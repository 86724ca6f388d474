"""YAML of Rails and Symfony: texts are translated, stay valid, and all other bytes stay."""

import pytest
import yaml

from tests.document_translation import copy, shout, translate_document
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

RAILS = """# A note
en:
  greeting: Hello %{name}! # it
  quoted: 'It''s "here"'
  escaped: "one\\ntwo"
  lines: |
    One

      two

  folded: >-
    One long
    text

    and more
  list: [one, "two", on, 3]
  items:
  - 'yes'
  - true
  over: one
    two
  empty: ""
"""
EDITS = {
    "en:\n": "de:\n",
    "Hello": "HELLO",
    "'It''s \"here\"'": "'IT''S \"HERE\"'",
    '"one\\ntwo"': '"ONE\\nTWO"',
    "    One\n\n      two\n": "    ONE\n\n      TWO\n",
    "    One long\n    text\n\n    and more": "    ONE LONG TEXT\n\n    AND MORE",
    '[one, "two"': '[ONE, "TWO"',
    "'yes'": "'YES'",
    "over: one\n    two": "over: ONE TWO",
}


def translate(text, model=shout, direction=NO_DIRECTION):
    return translate_document(text, "yaml", model, split_simply, direction=direction)


@pytest.mark.parametrize("style", ["\n", "\r\n"])
def test_texts_are_translated_and_all_else_stays(style):
    expected = RAILS
    for before, after in EDITS.items():
        assert expected.count(before) == 1, before
        expected = expected.replace(before, after)
    source = RAILS.replace("\n", style)
    assert translate(source, direction=Direction("en", "deu_Latn")) == expected.replace("\n", style)
    assert translate(source, copy) == source


@pytest.mark.parametrize(
    "answer",
    [
        "a: b",
        "a # b",
        "no",
        "12",
        "- a",
        "'a",
        '"',
        "[a",
        "a, b]",
        "!!x",
        "* a",
        "a'b",
        "?",
    ],
)
def test_a_translation_is_a_text_wherever_it_stands(answer):
    text = "a: word\nb: 'word'\nc: \"word\"\nd: |\n  word\ne: >-\n  word\nf: [word, word]\n- no"[
        :-5
    ]
    translated = yaml.safe_load(translate(text, lambda texts: [(answer, None) for _ in texts]))
    assert translated == {**dict.fromkeys("abce", answer), "d": f"{answer}\n", "f": [answer] * 2}


@pytest.mark.parametrize(
    ("text", "direction", "expected"),
    [
        ("en-US:\n  a: 1\n", Direction(None, "pt_BR"), "pt-BR:\n  a: 1\n"),
        ("en:\n  a: 1\n", Direction("en", "no"), '"no":\n  a: 1\n'),
        ("de:\n  a: 1\n", Direction("en", "fr"), "de:\n  a: 1\n"),
        ("ok:\n  a: 1\nen: 2\n", Direction(None, "fr"), "ok:\n  a: 1\nen: 2\n"),
        ("new:\n  a: 1\n", Direction(None, "fr"), "new:\n  a: 1\n"),
        ("en:\n  a: 1\n", NO_DIRECTION, "en:\n  a: 1\n"),
    ],
)
def test_the_language_of_rails_becomes_the_target(text, direction, expected):
    assert translate(text, direction=direction) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &x b\nc: *x\n", "no anchors and aliases, got x"),
        ("a: [b\n", "must be YAML"),
        ("a: b\n---\nc: d\n", "must be YAML"),
        ("a: " + "[" * 9_000 + "]" * 9_000, "nested"),
    ],
)
def test_other_yaml_is_refused(text, words):
    with pytest.raises(UserError) as caught:
        translate(text)
    assert words in str(caught.value) and "\n" not in str(caught.value)
