"""The recurrent baseline: its search, padding, learning and gradients, and that training resumes
with it.
"""

import pytest
import torch
from recurrent_baseline import gradient_norms
from recurrent_model import RecurrentConfig, RecurrentForConditionalGeneration
from safetensors.torch import load_file

from tests.tiny import TINY_SIZES, tiny_model
from tests.tiny_runs import assert_equal_tensors, flags, no_scores
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

# 2 is EOS, 0 is padding
SOURCE = torch.tensor([[11, 12, 13, 14, 2], [15, 16, 2, 0, 0]])


def recurrent(layers=2, **fields):
    """Return a recurrent model with random weights, in evaluation mode."""
    torch.manual_seed(0)
    sizes = {"encoder_layers": layers, "decoder_layers": layers}
    sizes |= {"vocab_size": 40, "init_std": 0.5}
    fields = TINY_SIZES | sizes | fields
    return RecurrentForConditionalGeneration(RecurrentConfig(**fields)).eval()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_padding_does_not_change_results(layers):
    model = recurrent(layers)
    labels = torch.tensor([[20, 21, 2], [22, 2, -100]])
    with torch.inference_mode():
        together = model(input_ids=SOURCE, labels=labels)
        alone = model(input_ids=SOURCE[1:, :3], labels=labels[1:, :2])
    torch.testing.assert_close(together.logits[1:, :2], alone.logits)
    (weights,) = together.cross_attentions
    assert torch.all(weights[1, ..., 3:] == 0) and torch.all(weights[0] > 0)


def test_a_token_depends_on_the_source_and_earlier_tokens():
    model = recurrent()
    inputs = model.get_encoder().embed_tokens(SOURCE[:1]).detach().requires_grad_()
    states = model.get_encoder()(inputs_embeds=inputs).last_hidden_state[0]
    for state in states:
        (gradient,) = torch.autograd.grad(state.norm(), inputs, retain_graph=True)
        assert torch.all(gradient[0].norm(dim=-1) > 0)
    targets = model.get_decoder().embed_tokens(torch.tensor([[1, 20, 21]]))
    targets = targets.detach().requires_grad_()
    logits = model(inputs_embeds=inputs, decoder_inputs_embeds=targets).logits
    of_source, of_target = torch.autograd.grad(logits[0, 1].norm(), (inputs, targets))
    assert torch.all(of_source[0].norm(dim=-1) > 0)
    assert (of_target[0].norm(dim=-1) > 0).tolist() == [True, True, False]


def test_generate_equals_a_loop_by_hand():
    model = recurrent()
    tokens = model.generate(SOURCE, num_beams=1, max_new_tokens=6, min_new_tokens=6)
    target = torch.ones(2, 1, dtype=torch.long)
    with torch.inference_mode():
        for _ in range(6):
            outputs = model(SOURCE, decoder_input_ids=target, use_cache=False)
            logits = outputs.logits[:, -1]
            logits[:, 2] = -torch.inf
            target = torch.cat([target, logits.argmax(dim=-1, keepdim=True)], dim=1)
    assert tokens.tolist() == target.tolist()


def test_beam_search_keeps_the_states_of_its_hypotheses():
    model = recurrent()
    search = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 6}
    search |= {"output_scores": True, "return_dict_in_generate": True}
    cached = model.generate(SOURCE, use_cache=True, **search)
    whole = model.generate(SOURCE, use_cache=False, **search)
    assert cached.sequences.tolist() == whole.sequences.tolist()
    torch.testing.assert_close(cached.sequences_scores, whole.sequences_scores)


def test_the_model_learns_to_copy_and_loads_again(tmp_path):
    model = recurrent(1, init_std=None).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    labels, losses = SOURCE.masked_fill(SOURCE == 0, -100), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(input_ids=SOURCE, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < 0.1 * losses[0]
    model.eval().save_pretrained(tmp_path)
    loaded = RecurrentForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(loaded.generate(SOURCE), model.generate(SOURCE))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("build", [tiny_model, recurrent])
def test_gradient_norms_belong_to_the_first_embedding(build, tiny_tokenizer):
    separate = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    model = build(vocab_size=len(tiny_tokenizer), **separate)
    pairs = [("A man.", "Ein Mann."), ("Two dogs.", "Zwei Hunde.")]
    one, two = gradient_norms(model, tiny_tokenizer, pairs)
    sources, targets = zip(*pairs, strict=True)
    sources, targets = [*sources], [*targets]
    (first, second) = tiny_tokenizer(sources).input_ids
    assert one["tokens"] == (len(first) + len(second)) / 2
    source = torch.tensor([first[:-1] + second])
    (first, second) = tiny_tokenizer(targets).input_ids
    target = torch.tensor([first[:-1] + second])
    assert two["tokens"] == source.shape[1] and (source == source[0, 0]).sum() == 1
    for name, kept in (("first", len(target[0])), ("end", len(target[0]) // 4)):
        model.zero_grad()
        labels = target.clone()
        labels[0, :-kept] = -100
        shifted = model.prepare_decoder_input_ids_from_labels(target)
        outputs = model(input_ids=source, decoder_input_ids=shifted, labels=labels)
        (outputs.loss * kept).backward()
        embedding = model.get_encoder().embed_tokens
        gradient = embedding.weight.grad[source[0, 0]] / embedding.embed_scale
        assert two[name] == pytest.approx(float(gradient.norm()), rel=1e-4)


@pytest.mark.sweep
def test_training_resumes_bit_for_bit(corpus):
    def run(name, steps):
        options = {"max_steps": steps, "dropout": 0.1, "encoder_layers": 3}
        recipe = parse_recipe(flags(corpus, corpus / name, **options))
        model_class = RecurrentForConditionalGeneration
        return train(recipe, evaluate=no_scores, model_class=model_class)

    run("resumed", 3)
    folders = [run("resumed", 6), run("straight", 6)]
    files = [folder / "checkpoint-6" / "model.safetensors" for folder in folders]
    weights = [*map(load_file, files)]
    assert any("ahead" in name for name in weights[0])
    assert_equal_tensors(*weights)
