"""String catalogs of Xcode: open messages of one language are filled, and all else stays."""

import json

import pytest

from tests.document_translation import by_texts, copy, invent, shout
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import BlockTranslator, parse_document
from vanilla_transformer.text.languages import Direction


def unit(value, state="translated"):
    return {"stringUnit": {"state": state, "value": value}}


def plurals(**values):
    forms = {category: unit(value) for category, value in values.items()}
    return {"variations": {"plural": forms}}


MESSAGES = {
    "@ %@": {"comment": "A note", "shouldTranslate": True},
    "Done": {},
    "brand": {"shouldTranslate": False},
    "gone": {"extractionState": "stale"},
    "key.of": {"localizations": {"de": unit("Text 2"), "en": unit("Text \"one\"\nand two")}},
    "new": {"localizations": {"pl": unit("", "new")}},
    "phone": {"localizations": {"en": {"variations": {"device": {"mac": unit("Click")}}}}},
    "dogs": {"localizations": {"en": plurals(one="%lld dog", other="%lld dogs")}},
    "done": {"localizations": {"pl": unit("gotowe")}},
}  # fmt: skip
ADDED = {
    "@ %@": unit("@ %@", "needs_review"),
    "Done": unit("DONE", "needs_review"),
    "key.of": unit("TEXT \"ONE\"\nAND TWO", "needs_review"),
    "new": unit("NEW", "needs_review"),
}  # fmt: skip


def write(messages, style="\n"):
    """Return a catalog as Xcode writes it."""
    catalog = {"sourceLanguage": "en", "strings": messages, "version": "1.0"}
    text = json.dumps(catalog, ensure_ascii=False, indent=2, separators=(",", " : "))
    return text.replace("{}", "{\n\n    }").replace("\n", style)


def fill(text, model=shout, language="pl"):
    document = parse_document(text, "xcstrings", Direction("en", language))
    blocks = BlockTranslator(by_texts(model), split_simply)(document.blocks)
    return document.render(blocks), document.summary


@pytest.mark.parametrize("style", ["\n", "\r\n"])
def test_open_messages_are_written_as_xcode_does(style):
    expected = json.loads(json.dumps(MESSAGES))
    for key, localization in ADDED.items():
        note = expected[key].pop("shouldTranslate", None)
        expected[key].setdefault("localizations", {})["pl"] = localization
        if note is not None:
            expected[key]["shouldTranslate"] = note
    forms = {"one": "%lld DOG", "few": "%lld DOGS", "many": "%lld DOGS", "other": "%lld DOGS"}
    units = {}
    for category, value in forms.items():
        units[category] = unit(value, "needs_review")
    expected["dogs"]["localizations"]["pl"] = {"variations": {"plural": units}}
    text, summary = fill(write(MESSAGES, style))
    assert json.loads(text)["strings"] == expected
    assert json.loads(text)["strings"].keys() == expected.keys()
    skipped = "1 not to be translated; 1 obsolete; 1 with a translation; 1 with variations"
    expected_summary = f"Translated 5 of 9 messages. Skipped: {skipped}."
    assert summary == f"{expected_summary} 0 messages that break your build; 0 stayed open."
    again, summary = fill(text)
    assert again == text and summary.startswith("Translated 0 of 9 messages.")
    assert text.count("\r") == (text.count("\n") if style == "\r\n" else 0)


def test_a_form_for_zero_is_kept_beside_the_others():
    forms = plurals(zero="No dogs", one="%lld dog", other="%lld dogs")
    text, _ = fill(write({"dogs": {"localizations": {"en": forms}}}))
    units = json.loads(text)["strings"]["dogs"]["localizations"]["pl"]["variations"]["plural"]
    assert [*units] == ["zero", "one", "few", "many", "other"]
    assert units["zero"] == unit("NO DOGS", "needs_review")


def test_lines_of_other_messages_stay():
    text = write(MESSAGES)
    filled, _ = fill(text, copy)
    left = iter(filled.splitlines())
    kept = []
    for line in text.splitlines():
        if line and '"new"' not in line:
            kept.append(line.rstrip(" {,"))
    kept.remove('            "value" : ""')
    for kept_line in kept:
        assert any(line.startswith(kept_line) for line in left), kept_line


def test_a_message_that_would_break_a_build_stays_open():
    text = write({"See %@ now": {}, "it": {"localizations": {"pl": unit("to")}}})
    filled, summary = fill(text, invent)
    assert filled == text
    assert summary.endswith("0 messages that break your build; 1 stayed open.")


@pytest.mark.parametrize(
    ("text", "direction", "words"),
    [
        (write(MESSAGES), Direction("en", None), "Name the one to fill by --target_language"),
        (write(MESSAGES), Direction("de", "pl"), "source language of the file must be de"),
        ('{"strings": []}', Direction("en", "pl"), "must have `sourceLanguage` and `strings`"),
        (write({"a": "b"}), Direction("en", "pl"), "must have `sourceLanguage` and `strings`"),
        ("[]", Direction("en", "pl"), "must be in a JSON object"),
    ],
)
def test_other_catalogs_are_refused(text, direction, words):
    with pytest.raises(UserError) as caught:
        parse_document(text, "xcstrings", direction)
    assert words in str(caught.value) and "\n" not in str(caught.value)
