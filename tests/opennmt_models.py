"""Train a small model with the toolkit's own command; write greedy translations and logits to
`answers.json`.

Run by path in an environment with OpenNMT-py or eole.

    python opennmt_models.py eole|opennmt-py FOLDER < sources.json

FOLDER has the `config.yaml` of the command, which writes `model/` (eole) or `model_step_*.pt`
there.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import torch

sys.modules["spacy"] = ModuleType("spacy")  # imported by transforms that are not used here
UNKNOWN, PADDING, START, STEPS = 0, 1, 2, 12


def train(command, folder):
    sys.argv = [*command, "-config", str(folder / "config.yaml")]
    if command[0] == "eole":
        from eole.bin.main import main
    else:
        from onmt.bin.train import main
    main()


def eole_model(folder):
    """Return a function from source ids and prefix ids to the logits for each token of the
    prefix.
    """
    from eole.config.run import PredictConfig
    from eole.models.model import get_model_class

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
    """Return the function of `eole_model` for a checkpoint of OpenNMT-py."""
    from onmt.model_builder import load_test_model

    torch.serialization.add_safe_globals([Namespace])
    (path,) = folder.glob("model_step_*.pt")
    options = Namespace(
        models=[str(path)],
        **{
            "gpu": -1,
            "fp32": True,
            "int8": False,
            "precision": "fp32",
            "world_size": 0,
            "parallel_mode": "",
        },
        **{"quant_layers": [], "quant_type": "", "self_attn_type": "scaled-dot", "gpu_ranks": []},
    )
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


def main(toolkit, folder, sources):
    train(["eole", "train"] if toolkit == "eole" else ["onmt_train"], folder)
    logits = (eole_model if toolkit == "eole" else opennmt_model)(folder)
    return [translate(logits, source) for source in sources]


if __name__ == "__main__":
    toolkit, folder = sys.argv[1], Path(sys.argv[2])
    answers = main(toolkit, folder, json.load(sys.stdin))
    (folder / "answers.json").write_text(json.dumps(answers))
