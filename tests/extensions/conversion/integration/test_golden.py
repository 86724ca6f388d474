"""The configurations that conversions give, and all reasons of refusals, as they are stored in
`golden.json`. `python -m tests.extensions.conversion.integration.test_golden` stores the ones of
today, on purpose only.
"""

import io
import json
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedConfig

from tests.foreign_models import MAKERS, change_arrays, change_entries
from tests.opennmt_files import write_opennmt_text
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.cli import main

ANSWERS = Path(__file__).with_name("golden.json")
STACKS = ("model/encoder", "model/decoder")
CHECKPOINT = "checkpoint_best.pt"


def change_text_and_layers(folder):
    """Change options of the tokenizer and of the layers, whose reasons are in one refusal."""
    change_entries("config.yaml", "data/src", level="word")(folder)
    change_entries("config.yaml", STACKS[0], alpha=0.5)(folder)


# A format, and a change of a model of it. Models of transformers have tests that compare logits.
CASES = {
    "fairseq": ("fairseq", lambda folder: None),
    "fairseq, gelu": (
        "fairseq",
        change_entries(CHECKPOINT, "cfg/model", activation_fn="gelu", no_scale_embedding=True),
    ),
    "fairseq, limits": (
        "fairseq",
        change_entries(CHECKPOINT, "cfg/model", max_source_positions=700, dropout=0.3),
    ),
    "fairseq, refused": (
        "fairseq",
        change_entries(CHECKPOINT, "cfg/model", activation_fn="linear", decoder_embed_dim=8),
    ),
    "fsmt": ("fsmt", lambda folder: None),
    "joeynmt": ("joeynmt", lambda folder: None),
    "joeynmt, search": (
        "joeynmt",
        change_entries("config.yaml", "testing", beam_alpha=-1, max_output_length=-1),
    ),
    "joeynmt, separate": (
        "joeynmt",
        change_entries("config.yaml", "model", tied_embeddings=False),
    ),
    "joeynmt, text and layers": ("joeynmt", change_text_and_layers),
    "joeynmt, not tied": ("joeynmt", change_entries("config.yaml", "model", tied_softmax=False)),
    "opennmt-py": ("opennmt-py", lambda folder: None),
    "opennmt-py, dropout": (
        "opennmt-py",
        change_entries("model.pt", "opt", dropout=[0.1, 0.2], norm_eps=1e-4),
    ),
    "opennmt-py, separate": (
        "opennmt-py",
        change_entries("model.pt", "opt", share_embeddings=False),
    ),
    "opennmt-py, recurrent": (
        "opennmt-py",
        change_entries("model.pt", "opt", self_attn_type="average", encoder_type="rnn"),
    ),
    "eole, epsilon": ("eole", change_entries("config.json", STACKS[0], norm_eps=1)),
    "eole, transforms": ("eole", change_entries("config.json", transforms=["a", "b"])),
    "eole, positions": (
        "eole",
        change_entries("config.json", *STACKS, position_encoding_type="Rotary"),
    ),
    "marian-npz, layers": (
        "marian-npz",
        change_arrays(options={"type": "rnn", "transformer-postprocess": "an"}),
    ),
    "marian-npz": ("marian-npz", lambda folder: None),
    "marian-npz, untied": ("marian-npz", change_arrays(options={"tied-embeddings-all": False})),
    "marian-npz, vocabularies": ("marian-npz", change_arrays(options={"dim-vocabs": [3, 4]})),
}
SEARCH = ("num_beams", "length_penalty", "length_penalty_type", "early_stopping")
SEARCH += ("min_new_tokens", "max_new_tokens", "max_new_tokens_beyond_source")
SEARCH += ("suppress_tokens", "eos_token_id")


def answer(case, text, folder):
    """Return the configurations of a converted model, or the reasons of a refusal."""
    torch.manual_seed(0)
    form, change = CASES[case]
    path = MAKERS[form](folder / "theirs", text)
    change(folder / "theirs")
    source = path if form == "opennmt-py" else folder / "theirs"
    sentences = folder / "sentences"
    sentences.write_text("A dog.\n")
    command = ["convert", source, folder / "ours", "--source_format", form]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
        status = main([*map(str, command), "--sentences", str(sentences)])
    if status:
        reasons = re.findall(r"cannot represent this model: (.*)", errors.getvalue())
        return "\n".join(reasons)
    config = json.loads((folder / "ours" / "config.json").read_text())
    search = json.loads((folder / "ours" / "generation_config.json").read_text())
    fields = VanillaTransformerConfig().to_dict().keys()
    fields -= PreTrainedConfig().to_dict().keys()
    fields -= {"auto_map", "custom_pipelines"}
    values = {name: value for name, value in config.items() if name in fields}
    return values | {"search": {name: search.get(name) for name in SEARCH}}


@pytest.mark.parametrize("case", CASES)
def test_conversion_gives_the_stored_answer(case, text_folder, tmp_path):
    answers = json.loads(ANSWERS.read_text())
    assert answer(case, text_folder, tmp_path) == answers[case]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(temporary) / "text"
        text.mkdir()
        write_opennmt_text(text)
        rows = []
        for number, case in enumerate(CASES):
            folder = Path(temporary) / str(number)
            folder.mkdir()
            stored = answer(case, text, folder)
            rows.append(f"{json.dumps(case)}: {json.dumps(stored)}")
    ANSWERS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
