"""Files in the layouts of OpenNMT-py and eole, with random weights."""

import argparse
import json

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
    for side in ("source", "target"):
        (folder / side).write_text("\n".join(getattr(pair, side) for pair in PAIRS) + "\n")
    pieces = train_pieces(folder / "sp", [text for pair in PAIRS for text in pair], vocab_size=300)
    (folder / "vocab").write_text("\n".join(pieces[3:]) + "\n")
    return folder


def opennmt_options(**changes):
    options = {"enc_layers": 1, "dec_layers": 1, "hidden_size": 8, "heads": 2, "transformer_ff": 16}
    options |= {
        "pos_ffn_activation_fn": "relu",
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    }
    options |= {"src_subword_model": "elsewhere/sp.model", "encoder_type": "transformer"}
    return (
        options
        | {"data": {"corpus": {"transforms": ["sentencepiece"]}}, "decoder_type": "transformer"}
        | changes
    )


def opennmt_checkpoint(text_folder, tmp_path, **changes):
    """Write a file in OpenNMT-py's layout with random weights."""
    vocabulary = [*SPECIAL, *(text_folder / "vocab").read_text().split("\n")[:-1]]
    (tmp_path / "sp.model").write_bytes((text_folder / "sp.model").read_bytes())
    layer = {
        f"self_attn.{name}.weight": (8, 8)
        for name in ("linear_query", "linear_keys", "linear_values")
    }
    layer |= {"self_attn.final_linear.weight": (8, 8), "feed_forward.w_1.weight": (16, 8)}
    layer |= {"feed_forward.w_2.weight": (8, 16)}
    norms = {"encoder": ["layer_norm"], "decoder": ["layer_norm_1", "layer_norm_2"]}
    shapes = {}
    for stack, layers in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        shapes[f"{stack}.embeddings.make_embedding.emb_luts.0.weight"] = (len(vocabulary), 8)
        shapes[f"{stack}.embeddings.make_embedding.pe.pe"] = (5, 1, 8)
        inside = dict(layer)
        if stack == "decoder":
            inside |= {
                name.replace("self_attn", "context_attn"): shape for name, shape in layer.items()
            }
        for norm in [*norms[stack], "feed_forward.layer_norm"]:
            inside |= {f"{norm}.weight": (8,), f"{norm}.bias": (8,)}
        shapes |= {f"{stack}.{layers}.0.{name}": shape for name, shape in inside.items()}
        shapes |= {f"{stack}.layer_norm.weight": (8,), f"{stack}.layer_norm.bias": (8,)}
    weights = {name: torch.randn(shape) for name, shape in shapes.items()}
    weights["decoder.embeddings.make_embedding.emb_luts.0.weight"] = weights[
        "encoder.embeddings.make_embedding.emb_luts.0.weight"
    ]
    generator = {
        "weight": weights["encoder.embeddings.make_embedding.emb_luts.0.weight"],
        "bias": torch.randn(len(vocabulary)),
    }
    content = {
        "model": weights,
        "generator": generator,
        "opt": argparse.Namespace(**opennmt_options(**changes)),
    }
    content["vocab"] = {"src": vocabulary, "tgt": vocabulary, "decoder_start_token": "<s>"}
    torch.save(content, tmp_path / "model.pt")
    return tmp_path / "model.pt"


def eole_folder(text_folder, folder, **changes):
    """Write a folder in eole's layout with one tensor, for the checks that precede loading the
    weights.
    """
    folder.mkdir()
    (folder / "sp.model").write_bytes((text_folder / "sp.model").read_bytes())
    side = {"hidden_size": 8, "layers": 1, "heads": 2} | changes
    model = {
        "encoder": side | {"encoder_type": "transformer"},
        "decoder": side | {"decoder_type": "transformer"},
    }
    spm = {
        "src_subword_model": "${MODEL_PATH}/sp.model",
        "tgt_subword_model": "${MODEL_PATH}/sp.model",
    }
    config = {
        "model": model,
        "transforms": ["sentencepiece"],
        "transforms_configs": {"sentencepiece": spm},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.json").write_text(json.dumps({"src": SPECIAL, "tgt": SPECIAL}))
    save_file({"src_emb.embeddings.weight": torch.zeros(4, 8)}, folder / "model.00.safetensors")
    return folder
