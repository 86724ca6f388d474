"""Build a random JoeyNMT model, save its checkpoint, and print greedy translations of token ids
with their logits.

Run by path in an environment with JoeyNMT. FOLDER has the `config.yaml`.

    python joeynmt_model.py FOLDER < sources.json
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import yaml
from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary

SPECIAL = {
    "unk_id": 0,
    "unk_token": "<unk>",
    "pad_id": 1,
    "pad_token": "<pad>",
    "bos_id": 2,
    "bos_token": "<s>",
}
SPECIAL |= {"eos_id": 3, "eos_token": "</s>", "sep_id": None, "sep_token": None, "lang_tags": []}


@torch.no_grad()
def main(folder, sources):
    torch.manual_seed(0)
    vocabularies = [
        Vocabulary(
            (folder / f"{side}_vocab.txt").read_text().split("\n")[:-1], SimpleNamespace(**SPECIAL)
        )
        for side in ("src", "trg")
    ]
    model = build_model(
        yaml.safe_load((folder / "config.yaml").read_text())["model"], *vocabularies
    ).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    torch.save({"model_state": model.state_dict()}, folder / "best.ckpt")
    answers = []
    for source in sources:
        ids, mask = torch.tensor([source]), torch.ones(1, 1, len(source), dtype=torch.bool)
        encoded, _ = model.encoder(model.src_embed(ids), torch.tensor([len(source)]), mask)
        tokens = [SPECIAL["bos_id"]]
        for _ in range(12):
            target = torch.tensor([tokens])
            logits = model.decoder(
                trg_embed=model.trg_embed(target),
                encoder_output=encoded,
                encoder_hidden=None,
                src_mask=mask,
                unroll_steps=None,
                hidden=None,
                trg_mask=torch.ones(1, 1, 1, dtype=torch.bool),
            )[0]
            last = logits[0, -1].clone()
            last[SPECIAL["pad_id"]] = -torch.inf
            tokens.append(int(last.argmax()))
        answers.append({"tokens": tokens, "logits": logits[0].tolist()})
    return answers


if __name__ == "__main__":
    json.dump(main(Path(sys.argv[1]), json.load(sys.stdin)), sys.stdout)
