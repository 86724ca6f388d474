"""`explain` returns the model's own numbers, and the page has them all and loads nothing."""

import base64
import json
import re

import numpy as np
import pytest
import torch

from tests.m2m_100_models import build_m2m_tokenizer
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.extensions.alignments.explanation import explain, render_page
from vanilla_transformer.extensions.alignments.explanation.explanation import MOST_TOKENS
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

TEXT = "Two dogs run."


def embedded_data(page):
    pattern = r'<script id="data" type="application/json">(.*?)</script>'
    return json.loads(re.search(pattern, page, re.DOTALL)[1])


def log_probabilities(tokens):
    """Return the log probabilities of explained tokens."""
    return [np.log(token.probability) for token in tokens]


def test_explain_has_the_translation_of_the_pipeline(tiny_tokenizer):
    model = tiny_model()
    translate = TranslationPipeline(model, tiny_tokenizer)
    (expected,) = translate([TEXT], num_return_sequences=4)
    explanation = explain(model, tiny_tokenizer, TEXT)
    assert explanation.translation == expected[0]["translation_text"]
    assert not explanation.is_forced
    for (text, _), answer in zip(explanation.hypotheses, expected, strict=True):
        assert text == answer["translation_text"]
    *tokens, last = explanation.source_tokens
    assert "".join(tokens) == TEXT
    assert last == "</s>"


def test_explain_has_probabilities_and_runners_up_of_a_translation(tiny_tokenizer):
    model = tiny_model()
    explanation = explain(model, tiny_tokenizer, TEXT, translation="Zwei Hunde")
    source, target = encode_sentences(tiny_tokenizer, [TEXT, "Zwei Hunde"])
    (expected,) = score_tokens(model, [source], [target])
    chosen = explanation.target_tokens
    assert explanation.is_forced
    assert explanation.translation == "Zwei Hunde"
    assert log_probabilities(chosen) == pytest.approx(expected, rel=1e-4)
    for token in chosen:
        values = [value for _, value in token.alternatives]
        assert values == sorted(values, reverse=True)
        assert len(values) == 5
        better = [value for value in values if value > token.probability]
        assert len(better) == min(token.rank - 1, 5)


def test_explain_begins_a_given_translation_with_its_language(tmp_path):
    tokenizer = build_m2m_tokenizer(tmp_path)  # its own target language is unknown
    model = tiny_model(vocab_size=200)
    options = {"src_lang": "en", "tgt_lang": "fr"}
    explanation = explain(model, tokenizer, "A man", translation="Grass", **options)
    source, target = encode_sentences(tokenizer, ["A man", "Grass"])
    tag = tokenizer.convert_tokens_to_ids("__fr__")
    (expected,) = score_tokens(model, [source], [[tag, *target[1:]]])
    chosen = explanation.target_tokens
    assert chosen[0].text == "__fr__"
    assert log_probabilities(chosen) == pytest.approx(expected, rel=1e-4)


def test_explain_has_the_attention_of_every_head(tiny_tokenizer):
    model = tiny_model(encoder_layers=2, decoder_layers=3)
    explanation = explain(model, tiny_tokenizer, TEXT, translation="Zwei Hunde")
    source, target = encode_sentences(tiny_tokenizer, [TEXT, "Zwei Hunde"])
    ids, previous = torch.tensor([source]), torch.tensor([[1, *target[:-1]]])
    outputs = model(input_ids=ids, decoder_input_ids=previous, output_attentions=True)
    names = {"cross": "cross_attentions"}
    numbers = []
    for attention in explanation.attentions:
        name = names.get(attention.kind, f"{attention.kind}_attentions")
        weights = torch.cat(getattr(outputs, name))
        torch.testing.assert_close(attention.weights, weights)
        numbers.append(attention.weights.shape[0])
    assert numbers == [3, 2, 3]


LINEAR = {"layer_types": "linear_attention"}
WITHOUT_WEIGHTS = [
    (LINEAR, ["cross"]),
    ({"layer_types": "lsh_attention"}, ["cross"]),
    (LINEAR | {"cross_attention_type": "linear_attention"}, []),
]


@pytest.mark.parametrize(("changes", "shown"), WITHOUT_WEIGHTS)
def test_explain_leaves_out_attention_without_weights(changes, shown, tiny_tokenizer):
    explanation = explain(tiny_long_model(**changes), tiny_tokenizer, TEXT)
    kinds = [part.kind for part in explanation.attentions if part.weights is not None]
    assert kinds == shown
    data = embedded_data(render_page(explanation, "model"))
    kinds = [row["kind"] for row in data["attentions"] if row["weights"] is not None]
    assert kinds == shown


def test_explain_names_the_parent_of_each_hypothesis(tiny_tokenizer):
    explanation = explain(tiny_model(), tiny_tokenizer, TEXT)
    for before, step in zip(explanation.steps, explanation.steps[1:], strict=False):
        for node in step:
            parent = before[node.parent].candidate
            assert parent.state == "kept"
            assert node.candidate.tokens[:-1] == parent.tokens
    hypotheses, places = explanation.hypotheses, explanation.places
    for (text, score), (row, column) in zip(hypotheses, places, strict=True):
        node = explanation.steps[row][column].candidate
        assert node.state == "finished"
        assert node.score == score
        decoded = tiny_tokenizer.decode(node.tokens, skip_special_tokens=True)
        assert decoded.strip() == text


LONG = "🐕" * MOST_TOKENS


@pytest.mark.parametrize(
    ("model", "text", "options", "message"),
    [
        ({}, " ", {}, "The text must have a word at least"),
        ({}, "One.", {"translation": ""}, "The translation must have a word at least"),
        ({}, "One.\nTwo.", {}, "The text must be one line, got 2. Explain one of its sentences."),
        (
            {},
            "One.",
            {"translation": "Eins.\u2028Zwei."},
            "The translation must be one line, got 2.",
        ),
        ({}, LONG, {}, f"The text must have at most {MOST_TOKENS} tokens to fit a page, got"),
        (
            {},
            "One.",
            {"translation": LONG},
            f"The translation must have at most {MOST_TOKENS} tokens to fit a page, got",
        ),
        (
            {},
            TEXT,
            {"num_beams": 1, "max_new_tokens": 120, "min_new_tokens": 120},
            "120. Limit it by `max_new_tokens`",
        ),
        ({"max_source_length": 3}, TEXT, {}, "at most 3 tokens, the longest in training; got"),
        ({"layer_types": "transfo_xl_attention"}, TEXT, {}, "with `transfo_xl_attention`"),
    ],
)
def test_explain_refuses_what_fits_no_page(model, text, options, message, tiny_tokenizer):
    build = tiny_long_model if "layer_types" in model else tiny_model
    with pytest.raises(ValueError, match=re.escape(message)):
        explain(build(**model), tiny_tokenizer, text, **options)


def test_render_page_has_the_weights_to_half_a_percent(tiny_tokenizer):
    explanation = explain(tiny_model(), tiny_tokenizer, TEXT)
    data = embedded_data(render_page(explanation, "model"))
    for shown, attention in zip(data["attentions"], explanation.attentions, strict=True):
        sizes = [shown[name] for name in ("layers", "heads", "rows", "columns")]
        content = np.frombuffer(base64.b64decode(shown["weights"]), np.uint8)
        weights = content.reshape(sizes) / 255
        np.testing.assert_allclose(weights, attention.weights, atol=0.002)


def test_render_page_escapes_markup_and_names_no_address(tiny_tokenizer):
    text = "</script><b>&amp;"
    page = render_page(explain(tiny_model(), tiny_tokenizer, text), "<i>{{data}}")
    assert embedded_data(page)["source"] == text
    assert "<title>&lt;i&gt;{{data}}: a translation explained</title>" in page
    assert "<i>" not in page and page.count("</script>") == 2
    links = {'href="data:,', 'href="#tokens', 'href="#attention', 'href="#search'}
    pattern = r"""https?://[^"'\s)]+|(?:src|href)=["'][^"']*|url\([^)]*|@import[^;]*"""
    addresses = re.findall(pattern, page)
    assert {*addresses} <= {"http://www.w3.org/2000/svg", *links}


def test_render_page_of_30_tokens_has_less_than_1_megabyte(tiny_tokenizer):
    """The model has the layers and heads of the big one in the paper."""
    sizes = {"encoder_layers": 6, "decoder_layers": 6}
    sizes |= {"encoder_attention_heads": 16, "decoder_attention_heads": 16}
    text = "A man is sleeping. Two dogs run. Zwei Hunde laufen weg."
    (tokens,) = encode_sentences(tiny_tokenizer, [text])
    assert len(tokens) >= 30
    explanation = explain(tiny_model(d_model=32, **sizes), tiny_tokenizer, text)
    assert len(render_page(explanation, "model").encode()) < 1_000_000
