"""Guided alignment: links between tokens, the loss of a head's attention, and recipes that cannot
have it.
"""

import pytest
import torch

from tests.tiny import tiny_model
from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.unit_links import token_spans
from vanilla_transformer.extensions.alignments.guided_alignment import (
    GuidedAlignment,
    alignment_loss,
    create_guided_alignment,
)
from vanilla_transformer.extensions.alignments.token_alignments import align_tokens
from vanilla_transformer.training.device_batch import BatchPreparation, batch_to_device
from vanilla_transformer.training.lora import LoraAdapters
from vanilla_transformer.training.loss import ModelWithLoss
from vanilla_transformer.training.recipe import parse_recipe

PAIR = SentencePair("A man is sleeping.", "Ein Mann schläft.")


def links_of(tokenizer, pair, words):
    source, target = token_spans(tokenizer, [pair.source, pair.target])
    return source, target, [*align_tokens(pair, source, target, words)]


def test_align_tokens_shares_a_target_token_among_its_words(tiny_tokenizer):
    words = {(0, 0), (1, 1), (2, 2), (3, 2)}
    source, target, links = links_of(tiny_tokenizer, PAIR, words)
    totals = dict.fromkeys(range(len(target)), 0.0)
    for token, other, divisor in links[:-1]:
        totals[token] += 1 / divisor
        end, other_end = target[token][1], source[other][1]
        assert (end <= 3) == (other_end <= 1)
        assert (end > 8) == (other_end > 5)
    last, _, divisor = links[-1]
    totals[last] += 1 / divisor
    texts = [PAIR.target[start:end] for start, end in target[:-1]]
    for text, total in zip([*texts, "EOS"], totals.values(), strict=True):
        # Others are white space, or punctuation at a word.
        is_in_a_word = any(map(str.isalpha, text))
        assert total == pytest.approx(1.0 if is_in_a_word else 0.0)
    assert (len(target) - 1, len(source) - 1, 1) in links


def test_align_tokens_sends_words_without_a_counterpart_to_eos(tiny_tokenizer):
    source, target, links = links_of(tiny_tokenizer, PAIR, {(1, 1)})
    first = [link for link in links if link[0] == 0]
    assert first == [(0, len(source) - 1, 1)]
    assert links_of(tiny_tokenizer, PAIR, set())[2] == []


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_model_with_loss_adds_the_cross_entropy_of_the_attention(attention):
    model = tiny_model(vocab_size=40, decoder_layers=2, attention_bias=True)
    model.set_attn_implementation("eager")
    ids = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    labels = torch.tensor([[9, 8, 2], [7, 2, -100]])
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    outputs = model(**batch, output_attentions=True)
    expected = outputs.cross_attentions[1][:, 0].log()
    # Pair, target, source and weight
    links = [(0, 0, 1, 1.0), (0, 1, 0, 0.5), (0, 1, 2, 0.5), (1, 0, 0, 1.0)]
    positions, guidance = [], 0.0
    for pair, target, source, weight in links:
        positions.append((pair * 3 + target) * 4 + source)
        guidance -= weight * expected[pair, target, source]
    batch["link_places"] = torch.tensor(positions)
    batch["link_weights"] = torch.tensor([weight for *_, weight in links])
    model.set_attn_implementation(attention)
    preparation = BatchPreparation.for_model(model)
    prepared = batch_to_device(batch, preparation, torch.device("cpu"))
    plain = ModelWithLoss(model, 0.1)(prepared)
    guide = GuidedAlignment(number=1, weight=0.3)
    guided = ModelWithLoss(model, 0.1, [guide])(prepared)
    torch.testing.assert_close(guided.smoothed, plain.smoothed + 0.3 * guidance)
    torch.testing.assert_close(guided.plain, plain.plain)
    assert not model.get_decoder().layers[1].encoder_attn._forward_pre_hooks


def test_alignment_loss_trains_the_adapters_of_its_head():
    pytest.importorskip("peft")
    model = tiny_model(vocab_size=40)
    adapters = LoraAdapters(model, rank=2)
    states = torch.randn(2, 3, 16)
    attention = model.get_decoder().layers[0].encoder_attn
    with torch.no_grad():
        for name, parameter in adapters.named_parameters():
            generator = torch.Generator().manual_seed(len(name))
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.1 * noise)
    links = torch.tensor([0, 4]), torch.ones(2)
    loss = alignment_loss(attention, states, None, states, *links)
    loss.backward()
    trained = set()
    for name, parameter in adapters.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            trained.add(name.split(".")[-4])
    assert trained == {"q_proj", "k_proj"}
    merged = adapters.merge().get_decoder().layers[0].encoder_attn
    merged_loss = alignment_loss(merged, states, None, states, *links)
    torch.testing.assert_close(merged_loss, loss)


def recipe_words(**changes):
    options = {"train_source": "a", "train_target": "b", "train_alignments": "c"}
    words = []
    for name, value in (options | {"output_dir": "runs/x"} | changes).items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return words


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bpe_dropout": 0.1}, "without `bpe_dropout`"),
        ({"drop": ["empty"]}, "without `drop`"),
        ({"min_letter_ratio": 0.5}, "without `min_letter_ratio`"),
        ({"score": "{forward: a, backward: b, keep: 0.5}"}, "without `score`"),
        (
            {"train_source": None, "train_target": None, "corpora": "[{file: a.tsv}]"},
            "without `corpora`",
        ),
        ({"train_alignments": "agreement", "bpe_dropout": 0.1}, "without `bpe_dropout`"),
        (
            {"attn_implementation": "flex_attention"},
            "without attn_implementation: flex_attention, got both: the head .* needs the mask",
        ),
        (
            {"layer_types": "linear_attention"},
            "models for long sequences, got both: their attention .* no softmax",
        ),
        (
            {"alignment_layer": 6},
            "`alignment_layer` must be below `decoder_layers`=6, counted from 0, got 6",
        ),
        ({"alignment_layer": -1}, "`alignment_layer` must be an integer from 0 to 1,000, got -1"),
        (
            {"train_alignments": None, "alignment_layer": 1},
            "must be given with `train_alignments`, got it without",
        ),
    ],
)
def test_recipe_refuses_guided_alignment_where_it_cannot_work(changes, text):
    with pytest.raises(ValueError, match=text):
        parse_recipe(recipe_words(**changes))


def test_recipe_aligns_any_text_that_training_reads_at_once():
    corpora = {"train_source": None, "train_target": None}
    corpora["corpora"] = "[{file: a.tsv, weight: 2}]"
    text = {"drop": ["empty"], "max_length": 50}
    for changes in (text, corpora, corpora | {"drop": ["duplicates"]}):
        recipe = parse_recipe(recipe_words(train_alignments="agreement", **changes))
        assert recipe.data.train_alignments == "agreement"


@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 1), (3, 1), (6, 4)])
def test_create_guided_alignment_trains_the_last_layer_but_one(layers, layer):
    """It is never the first of several."""
    config = VanillaTransformerConfig(decoder_layers=layers)
    tuned = {"init_from": "x", "decoder_layers": None}  # the model's own layers count
    for changes in ({"decoder_layers": layers}, tuned):
        recipe = parse_recipe(recipe_words(**changes))
        guide = create_guided_alignment(recipe, config)
        assert guide == GuidedAlignment(layer, 0.3)
        changes = changes | {"alignment_layer": 0, "alignment_weight": 0.05}
        recipe = parse_recipe(recipe_words(**changes))
        assert create_guided_alignment(recipe, config) == GuidedAlignment(0, 0.05)


def test_create_guided_alignment_refuses_models_that_cannot_have_it():
    recipe = parse_recipe(recipe_words(init_from="x", alignment_layer=7))
    config = VanillaTransformerConfig(decoder_layers=8)
    assert create_guided_alignment(recipe, config) == GuidedAlignment(7, 0.3)
    message = "`alignment_layer` must be below `decoder_layers`=7, .* got 7"
    with pytest.raises(ValueError, match=message):
        create_guided_alignment(recipe, VanillaTransformerConfig(decoder_layers=7))
    message = "`train_alignments` must be given for models with full attention only"
    with pytest.raises(ValueError, match=message):
        create_guided_alignment(recipe, VanillaTransformerLongConfig())
