"""Drafts in the pipeline: translations are the ones of greedy search, with whatever is around it."""

import copy
import math

import pytest

from tests.closeness import close_to
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.decoding.sentences import Draft, Sentence

TEXTS = ["A man.", "Two dogs run.\nA man is sleeping.", " ", "- "]
ENTRIES = {"return_scores": True, "return_tokens": True, "return_alignments": True}
KEPT = "Two https://a.example/x dogs and {name}."


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    model = tiny_model(vocab_size=len(tiny_tokenizer), init_std=0.4, decoder_layers=2)
    model.config.alignment_heads = [[1, 0]]
    return TranslationPipeline(model, tiny_tokenizer, max_new_tokens=12)


def texts_of(answers):
    return [answer["translation_text"] for answer in answers]


def record_requests(translate, monkeypatch):
    """Return a list to which the search appends what it gets: sentences and options."""
    searched, search = [], translate.search

    def record(sentences, options, report):
        searched.append((sentences, options))
        return search(sentences, options, report)

    monkeypatch.setattr(translate, "search", record)
    return searched


def test_pipeline_gives_the_translations_of_greedy_search_for_each_draft(translate):
    greedy = translate(TEXTS, num_beams=1, **ENTRIES)
    outputs = texts_of(greedy)
    sources = ["Ein Mann", "Zwei Hunde.\nEin", "x", ""]
    for drafts in (outputs, sources, outputs[::-1], [None, "Zwei", None, ""]):
        answers = translate(TEXTS, draft=drafts, num_beams=1, **ENTRIES)
        assert texts_of(answers) == outputs
        for ours, expected in zip(answers, greedy, strict=True):
            assert ours["log_probability"] == close_to(expected["log_probability"])
            assert len(ours["tokens"]) == len(expected["tokens"])
            assert ours["alignment"] == [close_to(link) for link in expected["alignment"]]


def test_pipeline_searches_greedily_where_there_is_a_draft(translate):
    """Other texts are translated as always."""
    (beams,) = translate(TEXTS[1:2], num_beams=4)
    usual, drafted, blank = translate([TEXTS[1]] * 3, draft=[None, "Ein Mann", ""])
    assert usual == blank == beams == translate(TEXTS[1])[0]
    assert drafted == translate(TEXTS[1], num_beams=1)[0] != beams


def test_pipeline_changes_translations_toward_a_draft_by_its_bias(translate):
    ((plain,), (biased,)) = (
        translate("A man.", draft="Zwei Hunde", draft_bias=bias) for bias in (0.0, 0.5)
    )
    assert biased["translation_text"].startswith("Zwei Hunde")
    assert not plain["translation_text"].startswith("Zwei Hunde")
    (shared,) = translate(["A man."], draft=iter(["Zwei Hunde"]), draft_bias=0.5)
    assert shared == biased


def test_pipeline_pairs_the_sentences_of_a_text_and_of_its_draft(translate, monkeypatch):
    searched = record_requests(translate, monkeypatch)
    text = "A man.\nTwo dogs. A man."
    translate(text, draft="Ein.\nZwei. Drei.", draft_bias=0.5)
    translate(text, draft="Ein.\nZwei. Drei.", split_sentences=True)
    translate(text, draft="Ein. Zwei.")  # which has fewer lines: all of it for each one
    drafts = [[sentence.draft for sentence in sentences] for sentences, _ in searched]
    assert drafts == [
        [Draft("Ein.", 0.5), Draft("Zwei. Drei.", 0.5)],
        [Draft("Ein."), Draft("Zwei."), Draft("Drei.")],
        [Draft("Ein. Zwei.")] * 2,
    ]


def test_pipeline_gives_a_draft_with_a_source_the_values_of_the_text(translate, monkeypatch):
    searched = record_requests(translate, monkeypatch)
    text = "A man of 7.\nTwo dogs."
    known = Draft("Ein Mann von 8.\nZwei.", source="A man of 8.\nTwo.")
    fewer = Draft("Ein Mann von 8.", source="A man of 8.")
    drafts = [known, fewer, known._replace(source=fewer.source)]
    translate([text] * 3, draft=drafts, draft_bias=0.2)
    drafts = [sentence.draft for sentences, _ in searched for sentence in sentences]
    assert drafts == [
        Draft("Ein Mann von 7.", 0.2, "A man of 7."),
        Draft("Zwei.", 0.2, "Two."),
        Draft("Ein Mann von 7.", 0.2, "A man of 7."),
        Draft("Ein Mann von .", 0.2, "A man of ."),
        Draft("Ein Mann von 8.", 0.2),
        Draft("Zwei.", 0.2),
    ]


def test_pipeline_shows_the_search_a_draft_with_the_masks_of_its_source(
    tiny_tokenizer, monkeypatch
):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_tokens(["<ph0>", "<ph1>"])
    translate = TranslationPipeline(tiny_model(vocab_size=len(tokenizer)), tokenizer)
    searched = record_requests(translate, monkeypatch)
    translate([KEPT] * 2, draft=["Zwei {name} und https://a.example/x.", "Zwei {name}."])
    (whole, other), _ = searched[0]
    assert whole.text == "Two <ph0> dogs and <ph1>."
    assert whole.draft == Draft("Zwei <ph1> und <ph0>.")
    assert other.draft == Draft("Zwei {name}.")  # which is nothing but a proposal
    draft = Draft("Zwei {name} und https://a.example/x.", 0.2, "Three {name}, https://a.example/x")
    searched.clear()
    translate.translate_sentences([Sentence(KEPT, "", (), draft=draft)])
    (known,), _ = searched[0]
    assert known.draft == Draft("Zwei <ph1> und <ph0>.", 0.2, "Three <ph1>, <ph0>")


def test_pipeline_prefers_words_that_the_source_makes_as_likely_as_the_one_of_the_draft(
    translate, monkeypatch
):
    requests, decode = [], Engine.decode

    def record(engine, batch, *further, **options):
        requests.extend(batch)
        return decode(engine, batch, *further, **options)

    monkeypatch.setattr(Engine, "decode", record)
    text, other, target = "A man.", "Two dogs run.", "Zwei Hunde und ein Mann"
    sentences = []
    for source in (other, text, ""):
        sentences.append(Sentence(text, "", (), draft=Draft(target, 0.2, source)))
    translate.translate_sentences(sentences)
    tokens = translate.encode_draft(target)
    sources = translate.tokenizer([text, other])["input_ids"]
    new, old = score_tokens(translate.model, sources, [tokens, tokens])
    expected = [
        max(0.2, 0.5 * min(1, math.exp(after - before)))
        for after, before in zip(new, old, strict=True)
    ]
    assert min(expected) < 0.4 < max(expected)
    assert [*requests[0].draft_bias] == close_to(expected)
    assert [*requests[1].draft_bias] == [0.5] * len(tokens)
    assert [*requests[2].draft_bias] == [0.2] * len(tokens)


def test_pipeline_gives_the_parts_of_a_message_their_parts_of_the_draft(translate, monkeypatch):
    searched = record_requests(translate, monkeypatch)
    message = "{n, plural, one {# man} other {# men}}"
    draft = "{n, plural, one {# Mann} other {# Hunde}}"
    translate([message, message, "A <b>man</b>."], draft=[draft, "Ein Mann", "Ein <b>Hund</b>."])
    drafts = []
    for sentences, _ in searched[:2]:
        drafts += [sentence.draft and sentence.draft.text for sentence in sentences]
    assert any("Mann" in (text or "") for text in drafts)
    assert "Ein Hund." in drafts
    assert "Ein Mann" not in drafts


def test_pipeline_translates_sentences_with_drafts(translate):
    options = {"num_beams": 4}
    drafted = Sentence("A man.", "", (), draft=Draft("Zwei Hunde", 0.5))
    plain = drafted._replace(draft=None)
    biased, usual = translate.translate_sentences([drafted, plain])
    assert biased.text.startswith("Zwei Hunde")
    assert [usual] == translate.translate_sentences([plain])
    # A search with several beams, and constraints, follow no drafts.
    assert [usual] == translate.translate_sentences([drafted], **options)
    with pytest.raises(OptionError, match="`draft` is for texts, not for sentences"):
        translate.translate_sentences([plain], draft="Zwei")


def test_pipeline_draws_the_same_samples_with_a_draft(translate):
    options = {"do_sample": True, "num_beams": 1, "seed": 3, "num_return_sequences": 2}
    expected = translate("A man.", **options)
    drafts = [answer["translation_text"] for answer in expected[0]]
    for draft in drafts:
        assert translate("A man.", draft=draft, **options) == expected


REFUSED = [
    ({"draft": "a", "num_beams": 4}, "A `draft` needs `num_beams=1` and, but for samples, one"),
    ({"draft": "a", "num_return_sequences": 2}, "one translation, got 1 beams and 2 translations"),
    ({"draft": "a", "alternatives": 2}, "without `constraints`, `alternatives` and `mbr`"),
    ({"draft": "a", "constraints": ["a"]}, "without `constraints`, `alternatives` and `mbr`"),
    ({"draft": "a", "mbr": "chrf"}, "without `constraints`, `alternatives` and `mbr`"),
    ({"draft": ["a", "b"]}, "None for no draft, but there are 2 for 1 texts."),
    ({"draft": "a", "repetition_penalty": 1.2}, "With `draft`, greedy and beam search must do"),
    (
        {"draft": "a", "draft_bias": 0.1, "do_sample": True},
        "`draft_bias` is for greedy search. Leave `do_sample` or it out.",
    ),
    ({"draft_bias": 0.1}, "`draft_bias` must be given with a `draft`, got 0.1 without one."),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_pipeline_refuses_other_options_beside_a_draft(translate, options, message):
    with pytest.raises(OptionError) as error:
        translate("A man.", **options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_pipeline_with_reranking_refuses_drafts(translate, monkeypatch):
    monkeypatch.setattr(translate, "reranker", object())
    with pytest.raises(OptionError, match="but a model reranks translations. Leave one of them"):
        translate("A man.", draft="a")
