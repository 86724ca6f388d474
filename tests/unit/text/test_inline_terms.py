"""Inline terms are written into a text, and its characters are found again."""

from vanilla_transformer.text.glossary import Glossary, Match
from vanilla_transformer.text.inline_terms import annotate

TEXT = "The dog sees a steam engine."
GLOSSARY = Glossary([("dog", "Köter"), ("steam engine", "Dampfmaschine")])


def test_annotate_writes_terms_beside_their_source():
    expected = (
        "The <term> dog <trans> Köter </term> sees a <term> steam engine <trans> "
        "Dampfmaschine </term>."
    )
    assert annotate(TEXT, GLOSSARY.find(TEXT)).text == expected
    assert annotate("No terms.", []) == ("No terms.", "No terms.", [])


def test_annotate_hides_terms():
    text = annotate(TEXT, [Match(4, 7, "Köter"), Match(8, 12, "sieht")], hidden={1}).text
    assert (
        text == "The <term> dog <trans> Köter </term> <term> <trans> sieht </term> a steam engine."
    )


def test_annotated_text_finds_original_characters():
    annotated = annotate(TEXT, GLOSSARY.find(TEXT))
    for word, original in [
        ("The", "The"),
        ("Köter", "dog"),
        ("<term> dog", "dog"),
        ("sees", "sees"),
        (".", "."),
    ]:
        start = annotated.text.index(word)
        begin, end = annotated.original((start, start + len(word)))
        assert TEXT[begin:end] == original
    assert annotated.original((len(annotated.text),) * 2) == (len(TEXT),) * 2
    start = annotated.text.index(" sees")
    assert annotated.original((start, start + 5)) == (7, 12)
