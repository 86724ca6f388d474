"""Small models of other toolkits, their checkpoints, and their greedy translations with logits.

Run by path in an environment with the toolkit.

    python toolkit_models.py joeynmt|eole|opennmt-py FOLDER < sources.json

FOLDER has a `config.yaml`. JoeyNMT builds a random model and saves `best.ckpt`; the commands of the
others train and write `model/` (eole) or `model_step_*.pt`. The answers are in `answers.json`.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
import yaml

sys.modules["spacy"] = ModuleType("spacy")  # imported by transforms that are not used here
UNKNOWN, PADDING, START, STEPS = 0, 1, 2, 12
JOEYNMT_SPECIAL = {
    "unk_id": UNKNOWN,
    "unk_token": "<unk>",
    "pad_id": PADDING,
    "pad_token": "<pad>",
    "bos_id": START,
    "bos_token": "<s>",
    "eos_id": 3,
    "eos_token": "</s>",
    "sep_id": None,
    "sep_token": None,
    "lang_tags": [],
}
OPENNMT_OPTIONS = {
    "gpu": -1,
    "fp32": True,
    "int8": False,
    "precision": "fp32",
    "world_size": 0,
    "parallel_mode": "",
    "quant_layers": [],
    "quant_type": "",
    "self_attn_type": "scaled-dot",
    "gpu_ranks": [],
}


def joeynmt_model(folder):
    """Return a function from source ids and prefix ids to the logits for each token of the
    prefix.
    """
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    torch.manual_seed(0)
    vocabularies = []
    for side in ("src", "trg"):
        tokens = (folder / f"{side}_vocab.txt").read_text().split("\n")[:-1]
        vocabularies.append(Vocabulary(tokens, SimpleNamespace(**JOEYNMT_SPECIAL)))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    model = build_model(config["model"], *vocabularies).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    torch.save({"model_state": model.state_dict()}, folder / "best.ckpt")

    def logits(source, target):
        ids, mask = torch.tensor([source]), torch.ones(1, 1, len(source), dtype=torch.bool)
        encoded, _ = model.encoder(model.src_embed(ids), torch.tensor([len(source)]), mask)
        return model.decoder(
            trg_embed=model.trg_embed(torch.tensor([target])),
            encoder_output=encoded,
            encoder_hidden=None,
            src_mask=mask,
            unroll_steps=None,
            hidden=None,
            trg_mask=torch.ones(1, 1, 1, dtype=torch.bool),
        )[0][0]

    return logits


def eole_model(folder):
    """Train, and return the function of `joeynmt_model`."""
    from eole.bin.main import main as train
    from eole.config.run import PredictConfig
    from eole.models.model import get_model_class

    sys.argv = ["eole", "train", "-config", str(folder / "config.yaml")]
    train()
    config = PredictConfig(model_path=str(folder / "model"), src="none", world_size=0, gpu_ranks=[])
    model = get_model_class(config.model).for_inference(config)[0].eval()

    def logits(source, target):
        # The toolkit leaves out the last token of what it is given, and takes a single one for a
        # step with a cache.
        ids = torch.tensor([[*target, PADDING, PADDING]])
        outputs = model(torch.tensor([source]), ids, torch.tensor([len(source)]))
        return model.generator(outputs.dec_out)[0, : len(target)]

    return logits


def opennmt_model(folder):
    """Train, and return the function of `joeynmt_model`."""
    from onmt.bin.train import main as train
    from onmt.model_builder import load_test_model

    sys.argv = ["onmt_train", "-config", str(folder / "config.yaml")]
    train()
    torch.serialization.add_safe_globals([Namespace])
    (path,) = folder.glob("model_step_*.pt")
    options = Namespace(models=[str(path)], **OPENNMT_OPTIONS)
    model = load_test_model(options, device_id=-1)[1].eval()

    def logits(source, target):
        ids = torch.tensor([[*target, PADDING]])[..., None]
        states, _ = model(torch.tensor([source])[..., None], ids, torch.tensor([len(source)]))
        return model.generator(states)[0]

    return logits


@torch.no_grad()
def translate(logits, source):
    tokens = [START]
    for _ in range(STEPS):
        last = logits(source, tokens)[-1].clone()
        last[PADDING] = -torch.inf
        tokens.append(int(last.argmax()))
    return {"tokens": tokens, "logits": logits(source, tokens[:-1]).tolist()}


MODELS = {"joeynmt": joeynmt_model, "eole": eole_model, "opennmt-py": opennmt_model}

if __name__ == "__main__":
    toolkit, folder = sys.argv[1], Path(sys.argv[2])
    logits = MODELS[toolkit](folder)
    answers = [translate(logits, source) for source in json.load(sys.stdin)]
    (folder / "answers.json").write_text(json.dumps(answers))
