"""The pipeline takes translations from a memory, and drafts of similar sentences."""

import pytest

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.sentences import Draft, Sentence
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError

MEMORY = {"A man is sleeping.": "Ein Mann ruht.", "I have 3 dogs.": "Ich habe 3 Hunde."}
SIMILAR = "I have 4 dogs."


@pytest.fixture(scope="module")
def translate():
    return TranslationPipeline(tiny_model(), tiny_tokenizer(), device="cpu")


@pytest.fixture
def searched(translate, monkeypatch):
    """Return the sentences that are decoded, each of which is its own translation."""
    sentences = []

    def decode(part, options, report):
        sentences.extend(part)
        return [[Translation(sentence.text)] * options.count for sentence in part]

    monkeypatch.setattr(translate, "decode", decode)
    return sentences


def test_sentence_of_the_memory_is_not_decoded(translate, searched):
    exact, other = "A man is sleeping.", "Grass"
    answers = translate(
        [exact, f"{exact}\n{exact}", other, SIMILAR], memory=MEMORY, return_scores=True
    )
    target = MEMORY[exact]
    expected = [target, f"{target}\n{target}", other, SIMILAR]
    assert [answer["translation_text"] for answer in answers] == expected
    assert [answer.get("memory") for answer in answers] == [1, 1, None, 0.99]
    drafts = [(sentence.text, sentence.draft) for sentence in searched]
    # The source of the draft has the numbers of the text, too.
    assert drafts == [(other, None), (SIMILAR, Draft("Ich habe 4 Hunde.", 0.2, SIMILAR))]


def test_line_of_the_memory_is_not_split(translate, searched):
    lines = ["A man is sleeping. He snores.", "A man is sleeping. I have 2047 dogs."]
    memory = {lines[0]: "Da schnarcht einer.", lines[1]: "Er hat Hunde.", **MEMORY}
    answers = translate([*lines, "\n".join(lines)], memory=memory, split_sentences=True)
    parts = "Ein Mann ruht. I have 2047 dogs."  # since the translation of the line lost its number
    expected = ["Da schnarcht einer.", parts, f"Da schnarcht einer.\n{parts}"]
    assert [answer["translation_text"] for answer in answers] == expected


@pytest.mark.parametrize(
    ("options", "draft"),
    [
        ({"draft_bias": 0.5}, Draft("Ich habe 4 Hunde.", 0.5)),
        ({"draft": "Mein Hund.", "draft_bias": 0.1}, Draft("Mein Hund.", 0.1)),
        ({"num_return_sequences": 2, "num_beams": 2}, None),
        ({"do_sample": True, "num_beams": 1}, None),
        ({"target_prefix": "Ich"}, None),
    ],
)
def test_similar_sentence_has_a_draft_in_one_greedy_search(translate, searched, options, draft):
    translate(SIMILAR, memory=MEMORY, **options)
    (sentence,) = searched
    assert sentence.draft == draft


def test_several_translations_begin_with_the_one_of_the_memory(translate, searched):
    text = "A man is sleeping."
    (answers,) = translate([text], memory=MEMORY, num_return_sequences=2, num_beams=2)
    assert [answer["translation_text"] for answer in answers] == [MEMORY[text], text]


def test_sentence_of_a_document_keeps_what_must_survive(translate, searched):
    memory = {"Call foo now.": "Rufe foo auf.", "Call bar now.": "Rufe auf."}
    sentences = [Sentence(text, "", (), kept=[(5, 8)]) for text in memory]
    exact, lost = translate.translate_sentences(sentences, memory=memory)
    assert exact.text == "Rufe foo auf."
    assert lost.text == "Call bar now."
    assert searched[0].draft.text == "Rufe auf."


def test_memory_is_certain(translate):
    (answer,) = translate(
        "A man is sleeping.", memory=MEMORY, return_warnings=True, return_tokens=True
    )
    assert answer["tokens"][0]["text"] == answer["translation_text"] == "Ein Mann ruht."
    assert answer["warnings"] == []
    with pytest.raises(UserError, match="`draft_bias` must be given with a `draft`"):
        translate("A man is sleeping.", draft_bias=0.2)
