"""Text that grows has the translation of its last sentence as draft, and is exact at its end."""

from types import SimpleNamespace

import pytest

from vanilla_transformer.decoding.live_translation import LiveTranslation


class Recorder:
    """A pipeline that answers in capitals, and notes each text with its draft and its bias."""

    def __init__(self):
        self.calls = []
        self.tokenizer = SimpleNamespace(decode=lambda tokens, **_: " ".join(tokens))

    def with_options(self, **options):
        assert options["num_beams"] == 1
        return self

    def encode_draft(self, text):
        return text.split()

    def __call__(self, texts, batch_size, progress_bar, draft, draft_bias):
        self.calls += zip(texts, draft, [draft_bias] * len(texts), strict=True)
        return [{"translation_text": text.upper()} for text in texts]


@pytest.fixture
def recorder():
    return Recorder()


def test_live_translation_drafts_its_last_output(recorder):
    live = LiveTranslation(recorder, hide=2)
    assert live.update("A small dog") == ("A SMALL DOG", len("A"))
    assert live.update("A small dog is") == ("A SMALL DOG IS", len("A SMALL"))
    assert live.update("A") == ("A", 0)
    assert live.finish() == ("A", 1)
    assert recorder.calls == [
        ("A small dog", "", 0.2),
        ("A small dog is", "A SMALL DOG", 0.2),
        ("A", "A SMALL DOG IS", 0.2),
        ("A", "A", 0.0),
    ]


def test_finished_sentences_are_exact_and_stay(recorder):
    live = LiveTranslation(recorder, hide=1)
    live.update("One dog. Two")
    recorder.calls.clear()
    text = "One dog. Two dogs.\n\nThree"
    assert live.update(text) == ("ONE DOG. TWO DOGS.\n\nTHREE", len("ONE DOG. TWO DOGS.\n\n"))
    assert recorder.calls == [("Two dogs.", "TWO", 0.0), ("Three", "", 0.2)]
    recorder.calls.clear()
    edited = text.replace("One", "A")
    assert live.update(edited).text == edited.upper()
    assert recorder.calls == [("A dog.", "ONE DOG.", 0.0), ("Three", "THREE", 0.2)]
    recorder.calls.clear()
    assert live.finish(f"{edited} cats.") == (f"{edited} cats.".upper(), len(edited) + 6)
    assert recorder.calls == [("Three cats.", "THREE", 0.0)]


def test_blank_text_has_a_blank_translation(recorder):
    live = LiveTranslation(recorder)
    assert live.finish() == live.update(" \n") == live.finish("") == ("", 0)
    assert recorder.calls == []
