"""Random encoder-decoders with different sizes on each side, and batches for them."""

from functools import partial

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

VOCABULARY = 40
PAD = 0
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 30}
# For compiled and exported models: tracing one layer takes half the time of tracing two.
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}


def uneven_config(**changes):
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 32,
        "dropout": 0.0,
    }
    return VanillaTransformerConfig(**{**sizes, **changes})


def randomize(module):
    """Add noise to all weights, so that zero biases and unit norm weights do not hide errors;
    return the module.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:  # Marian stores its sinusoids in a frozen parameter
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def uneven_model(**changes):
    torch.manual_seed(0)
    return randomize(VanillaTransformerForConditionalGeneration(uneven_config(**changes))).eval()


def tokens(batch_size, length, vocabulary=VOCABULARY, seed=0):
    """Return random tokens `(batch_size, length)` without special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary, (batch_size, length), generator=generator)


def padded_batch(rows, side="right"):
    """Pad rows of different lengths; return ids and mask (1 for tokens), both
    `(batch_size, longest)`.
    """
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for number, row in enumerate(rows):
        start = longest - len(row) if side == "left" else 0
        ids[number, start : start + len(row)] = row
        mask[number, start : start + len(row)] = 1
    return ids, mask


def gradients(model):
    copies = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            copies[name] = parameter.grad.clone()
    return copies


def loss_and_gradients(model, forward=None, **inputs):
    """Return logits and gradients of a training step with `forward`: `model` or a compiled version
    of it.
    """
    model.zero_grad()
    output = (model if forward is None else forward)(**inputs)
    output.loss.backward()
    return output.logits.detach(), gradients(model)


def assert_same_gradients(one, other, **tolerance):
    assert one
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(gradient, other[name], msg=message, **tolerance)


def assert_training_step_compiles_to_one_graph(implementation, backend):
    torch.compiler.reset()
    model = uneven_model(attn_implementation=implementation, **SHALLOW)
    source, mask = padded_batch([tokens(1, 7)[0], tokens(1, 3)[0]])
    inputs = {"input_ids": source, "attention_mask": mask, "labels": tokens(2, 5)}
    expected = loss_and_gradients(model, **inputs)
    forward = torch.compile(model, fullgraph=True, backend=backend)
    compiled = loss_and_gradients(model, forward, **inputs)
    torch.testing.assert_close(compiled[0], expected[0], atol=1e-5, rtol=1e-5)
    assert_same_gradients(compiled[1], expected[1], atol=1e-5, rtol=1e-4)
