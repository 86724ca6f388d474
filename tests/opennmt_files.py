"""Files in the layouts of OpenNMT-py and eole, with random weights."""

import argparse
import json
from itertools import chain

import torch
from safetensors.torch import save_file

from tests.tiny import train_pieces
from vanilla_transformer.data.demo_corpus import read_demo_corpus

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
PAIRS = read_demo_corpus("test", 200)


def write_opennmt_text(folder):
    """Write text of both languages, a SentencePiece model and the list of its pieces; return the
    folder.
    """
    for side, texts in zip(("source", "target"), zip(*PAIRS, strict=True), strict=True):
        (folder / side).write_text("\n".join(texts) + "\n")
    pieces = train_pieces(folder / "sp", [*chain(*PAIRS)], vocab_size=300)
    (folder / "vocab").write_text("\n".join(pieces[3:]) + "\n")
    return folder


def opennmt_options(**changes):
    options = {"enc_layers": 1, "dec_layers": 1, "hidden_size": 8, "heads": 2}
    options |= {"transformer_ff": 16, "pos_ffn_activation_fn": "relu"}
    options |= {"share_embeddings": True, "share_decoder_embeddings": True}
    options |= {"encoder_type": "transformer", "decoder_type": "transformer"}
    options |= {"data": {"corpus": {"transforms": ["sentencepiece"]}}}
    options["src_subword_model"] = "elsewhere/sp.model"
    return options | changes


ATTENTION = ["linear_query", "linear_keys", "linear_values", "final_linear"]
EMBEDDINGS = "embeddings.make_embedding.emb_luts.0.weight"


def opennmt_checkpoint(text_folder, tmp_path, **changes):
    """Write a file in OpenNMT-py's layout with random weights."""
    vocabulary = [*SPECIAL, *(text_folder / "vocab").read_text().split("\n")[:-1]]
    (tmp_path / "sp.model").write_bytes((text_folder / "sp.model").read_bytes())
    weights = stack_weights("encoder.transformer.0", ["self_attn"], ["layer_norm"])
    norms = ["layer_norm_1", "layer_norm_2"]
    attentions = ["self_attn", "context_attn"]
    weights |= stack_weights("decoder.transformer_layers.0", attentions, norms)
    embeddings = torch.randn(len(vocabulary), 8)
    for stack in ("encoder", "decoder"):
        weights[f"{stack}.{EMBEDDINGS}"] = embeddings
        weights[f"{stack}.embeddings.make_embedding.pe.pe"] = torch.randn(5, 1, 8)
        for kind in ("weight", "bias"):
            weights[f"{stack}.layer_norm.{kind}"] = torch.randn(8)
    generator = {"weight": embeddings, "bias": torch.randn(len(vocabulary))}
    options = argparse.Namespace(**opennmt_options(**changes))
    content = {"model": weights, "generator": generator, "opt": options}
    content["vocab"] = {"src": vocabulary, "tgt": vocabulary, "decoder_start_token": "<s>"}
    torch.save(content, tmp_path / "model.pt")
    return tmp_path / "model.pt"


def stack_weights(layer, attentions, norms):
    """Return random weights of a layer."""
    weights = {f"{layer}.feed_forward.w_1.weight": torch.randn(16, 8)}
    weights[f"{layer}.feed_forward.w_2.weight"] = torch.randn(8, 16)
    for attention in attentions:
        for name in ATTENTION:
            weights[f"{layer}.{attention}.{name}.weight"] = torch.randn(8, 8)
    for norm in [*norms, "feed_forward.layer_norm"]:
        for kind in ("weight", "bias"):
            weights[f"{layer}.{norm}.{kind}"] = torch.randn(8)
    return weights


def eole_folder(text_folder, folder, **changes):
    """Write a folder in eole's layout with one tensor, for the checks that precede loading the
    weights.
    """
    folder.mkdir()
    (folder / "sp.model").write_bytes((text_folder / "sp.model").read_bytes())
    side = {"hidden_size": 8, "layers": 1, "heads": 2} | changes
    model = {"encoder": side | {"encoder_type": "transformer"}}
    model["decoder"] = side | {"decoder_type": "transformer"}
    names = ("src_subword_model", "tgt_subword_model")
    files = dict.fromkeys(names, "${MODEL_PATH}/sp.model")
    config = {"model": model, "transforms": ["sentencepiece"]}
    config["transforms_configs"] = {"sentencepiece": files}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps({"src": SPECIAL, "tgt": SPECIAL}))
    save_file({"src_emb.embeddings.weight": torch.zeros(4, 8)}, folder / "model.00.safetensors")
    return folder
