"""Files in JoeyNMT's layout, without weights."""

import yaml

from tests.marian_models import MARIAN_SENTENCES
from tests.pieces import train_pieces

SIDE = {
    "type": "transformer",
    "hidden_size": 16,
    "ff_size": 32,
    "num_heads": 2,
    "num_layers": 2,
    "dropout": 0.1,
}


def joey_folder(folder, same=True, **changes):
    folder.mkdir()
    tokens = [
        "<unk>",
        "<pad>",
        "<s>",
        "</s>",
        *train_pieces(folder / "sp", MARIAN_SENTENCES * 3)[3:],
    ]
    for side, kept in (("src", tokens), ("trg", tokens if same else tokens[:-3])):
        (folder / f"{side}_vocab.txt").write_text("\n".join(kept) + "\n")
    side = (
        SIDE
        | {"layer_norm": "post", "embeddings": {"embedding_dim": 16, "scale": True, "dropout": 0.0}}
        | changes
    )
    config = {
        "model": {"tied_embeddings": same, "tied_softmax": same, "encoder": side, "decoder": side},
        "data": {
            name: {
                "lang": name,
                "level": "bpe",
                "tokenizer_cfg": {"model_file": "elsewhere/sp.model"},
            }
            for name in ("src", "trg")
        },
        "testing": {"beam_size": 5, "beam_alpha": 1.0, "max_output_length": 12},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder
