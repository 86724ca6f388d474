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
    return json.loads(
        re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    )


def test_explain_has_the_translation_of_the_pipeline(tiny_tokenizer):
    model = tiny_model()
    expected = TranslationPipeline(model, tiny_tokenizer)(TEXT, num_return_sequences=4)[0]
    found = explain(model, tiny_tokenizer, TEXT)
    assert found.translation == expected[0]["translation_text"] and not found.is_forced
    assert [text for text, _ in found.hypotheses] == [each["translation_text"] for each in expected]
    assert "".join(found.source_tokens[:-1]) == TEXT and found.source_tokens[-1] == "</s>"


def test_explain_has_the_probabilities_and_runners_up_of_a_given_translation(tiny_tokenizer):
    model = tiny_model()
    found = explain(model, tiny_tokenizer, TEXT, translation="Zwei Hunde")
    source, target = encode_sentences(tiny_tokenizer, [TEXT, "Zwei Hunde"])
    (expected,) = score_tokens(model, [source], [target])
    chosen = found.target_tokens
    assert found.is_forced and found.translation == "Zwei Hunde"
    assert [np.log(each.probability) for each in chosen] == pytest.approx(expected, rel=1e-4)
    for token in chosen:
        values = [value for _, value in token.alternatives]
        assert values == sorted(values, reverse=True) and len(values) == 5
        assert sum(value > token.probability for value in values) == min(token.rank - 1, 5)


def test_explain_begins_a_given_translation_with_its_language(tmp_path):
    tokenizer = build_m2m_tokenizer(tmp_path)  # its own target language is unknown
    model = tiny_model(vocab_size=200)
    found = explain(model, tokenizer, "A man", translation="Grass", src_lang="en", tgt_lang="fr")
    source, target = encode_sentences(tokenizer, ["A man", "Grass"])
    (expected,) = score_tokens(
        model, [source], [[tokenizer.convert_tokens_to_ids("__fr__"), *target[1:]]]
    )
    assert found.target_tokens[0].text == "__fr__"
    assert [np.log(each.probability) for each in found.target_tokens] == pytest.approx(
        expected, rel=1e-4
    )


def test_explain_has_the_attention_of_every_head(tiny_tokenizer):
    model = tiny_model(encoder_layers=2, decoder_layers=3)
    found = explain(model, tiny_tokenizer, TEXT, translation="Zwei Hunde")
    source, target = encode_sentences(tiny_tokenizer, [TEXT, "Zwei Hunde"])
    ids, previous = torch.tensor([source]), torch.tensor([[1, *target[:-1]]])
    outputs = model(input_ids=ids, decoder_input_ids=previous, output_attentions=True)
    for attention in found.attentions:
        name = "cross_attentions" if attention.kind == "cross" else f"{attention.kind}_attentions"
        torch.testing.assert_close(attention.weights, torch.cat(getattr(outputs, name)))
    assert [each.weights.shape[0] for each in found.attentions] == [3, 2, 3]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"layer_types": "linear_attention"}, ["cross"]),
        ({"layer_types": "lsh_attention"}, ["cross"]),
        ({"layer_types": "linear_attention", "cross_attention_type": "linear_attention"}, []),
    ],
)
def test_explain_leaves_out_attention_without_weights(changes, shown, tiny_tokenizer):
    found = explain(tiny_long_model(**changes), tiny_tokenizer, TEXT)
    assert [each.kind for each in found.attentions if each.weights is not None] == shown
    data = embedded_data(render_page(found, "model"))
    assert [each["kind"] for each in data["attentions"] if each["weights"] is not None] == shown


def test_explain_names_the_parent_of_each_hypothesis(tiny_tokenizer):
    found = explain(tiny_model(), tiny_tokenizer, TEXT)
    for before, step in zip(found.steps, found.steps[1:], strict=False):
        for node in step:
            parent = before[node.parent].candidate
            assert parent.state == "kept" and node.candidate.tokens[:-1] == parent.tokens
    for (text, score), (row, column) in zip(found.hypotheses, found.places, strict=True):
        node = found.steps[row][column].candidate
        assert node.state == "finished" and node.score == score
        assert tiny_tokenizer.decode(node.tokens, skip_special_tokens=True).strip() == text


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
    found = explain(tiny_model(), tiny_tokenizer, TEXT)
    data = embedded_data(render_page(found, "model"))
    for shown, attention in zip(data["attentions"], found.attentions, strict=True):
        sizes = [shown[name] for name in ("layers", "heads", "rows", "columns")]
        weights = np.frombuffer(base64.b64decode(shown["weights"]), np.uint8).reshape(sizes) / 255
        np.testing.assert_allclose(weights, attention.weights, atol=0.002)


def test_render_page_escapes_markup_and_names_no_address(tiny_tokenizer):
    text = "</script><b>&amp;"
    page = render_page(explain(tiny_model(), tiny_tokenizer, text), "<i>{{data}}")
    assert embedded_data(page)["source"] == text
    assert "<title>&lt;i&gt;{{data}}: a translation explained</title>" in page
    assert "<i>" not in page and page.count("</script>") == 2
    links = {'href="data:,', 'href="#tokens', 'href="#attention', 'href="#search'}
    addresses = re.findall(
        r"""https?://[^"'\s)]+|(?:src|href)=["'][^"']*|url\([^)]*|@import[^;]*""", page
    )
    assert {*addresses} <= {"http://www.w3.org/2000/svg", *links}


def test_render_page_of_30_tokens_has_less_than_1_megabyte(tiny_tokenizer):
    """The model has the layers and heads of the big one in the paper."""
    sizes = {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
    }
    (tokens,) = encode_sentences(
        tiny_tokenizer, [text := "A man is sleeping. Two dogs run. Zwei Hunde laufen weg."]
    )
    assert len(tokens) >= 30
    found = explain(tiny_model(d_model=32, **sizes), tiny_tokenizer, text)
    assert len(render_page(found, "model").encode()) < 1_000_000
