"""Models of FSMT and files of fairseq, with random weights."""

import argparse
import json

import torch
from transformers import FSMTConfig, FSMTForConditionalGeneration, FSMTTokenizer

FSMT_SENTENCES = ["a man is sleeping .", "two dogs run", "dogs !"]
MERGES = ["d o", "g s</w>", "m a", "i s</w>"]
PIECES = [*"abcdefghijklmnopqrstuvwxyz.!", "do", "ma"]
DICTIONARY = [*(f"{piece}@@" for piece in PIECES), *PIECES[:28], "gs", "is"]
SIZES = {"encoder_layers": 2, "decoder_layers": 1}
SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
FAIRSEQ_SIZES = SIZES | {"encoder_embed_dim": 16, "decoder_embed_dim": 16}
FAIRSEQ_SIZES |= {"encoder_ffn_embed_dim": 32, "decoder_ffn_embed_dim": 24}


def build_fsmt_tokenizer(folder):
    """Write the vocabularies and merges of a tokenizer with the ids of `DICTIONARY`, and load
    it.
    """
    folder = folder / "vocabularies"
    folder.mkdir()
    names = ["<s>", "<pad>", "</s>", "<unk>", *PIECES]
    names += [f"{piece}</w>" for piece in [*PIECES[:28], "gs", "is"]]
    vocabulary = json.dumps({name: index for index, name in enumerate(names)})
    for side in ("source", "target"):
        (folder / side).write_text(vocabulary)
    (folder / "merges").write_text("\n".join(MERGES) + "\n")
    files = [str(folder / name) for name in ("source", "target", "merges")]
    return FSMTTokenizer(["en", "de"], *files)


def fsmt(vocab_size, **changes):
    torch.manual_seed(0)
    config = FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=vocab_size,
        tgt_vocab_size=changes.pop("tgt_vocab_size", vocab_size),
        d_model=16,
        encoder_ffn_dim=32,
        decoder_ffn_dim=24,
        init_std=0.3,
        forced_eos_token_id=None,
        **SIZES,
        **changes,
    )
    model = FSMTForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def fairseq_folder(folder, old=False, **arguments):
    """Write a fairseq folder with random weights.

    fairseq needs Python 3.8. Names and shapes are the ones that FSMT's conversion reads.
    """
    folder.mkdir()
    languages = {"source_lang": "en", "target_lang": "de"}
    options = languages | {"activation_fn": "relu"} | FAIRSEQ_SIZES | arguments
    dictionary = "".join(f"{token} 7\n" for token in DICTIONARY)
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text(dictionary)
    merges = "".join(f"{merge} 12\n" for merge in MERGES)
    (folder / "bpecodes").write_text(f"#version: 0.2\n{merges}")
    reference = fsmt(len(DICTIONARY) + 4).state_dict()
    weights = {}
    for name, tensor in reference.items():
        weights[name.removeprefix("model.")] = tensor
    for side in ("encoder", "decoder"):
        del weights[f"{side}.embed_positions.weight"]
        weights[f"{side}.version"] = torch.tensor([3.0])
        weights[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        if arguments.get(f"{side}_normalize_before"):
            weights[f"{side}.layer_norm.weight"] = torch.ones(16)
            weights[f"{side}.layer_norm.bias"] = torch.zeros(16)
        if arguments.get(f"{side}_learned_pos"):
            weights[f"{side}.embed_positions.weight"] = torch.randn(66, 16)
    if arguments.get("share_decoder_input_output_embed"):
        weights["decoder.output_projection.weight"] = weights["decoder.embed_tokens.weight"]
    content = {"model": weights, "args": argparse.Namespace(**options)}
    if not old:
        content["cfg"] = {"model": content["args"], "task": languages}
        content["args"] = None
    torch.save(content, folder / "checkpoint_best.pt")
    return folder
