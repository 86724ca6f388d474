"""The gate: a good folder passes, and each check fails on a folder that was broken on purpose."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from tests.publishable import add_card
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.publishing import checks
from vanilla_transformer.publishing.behaviour import BEHAVIOUR_NAMES, check_behaviour

WEIGHTS = "model.safetensors"
MODELING = "modeling_vanilla_transformer.py"


def failed(outcomes):
    return {one.name: one.detail for one in checks.failures(outcomes)}


@pytest.fixture
def without_a_process(monkeypatch):
    """The checks of files alone."""
    monkeypatch.setattr(checks, "_check_in_a_fresh_process", lambda folder: [])


def change_weights(folder, change):
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_good_folder_passes_in_a_process_without_this_package(folder, capfd):
    outcomes = checks.check_folder(folder)
    assert not failed(outcomes)
    assert {"files", "no pickle", "weights", "card", "hashes", "code", "stands alone", "same here"} <= {
        one.name for one in outcomes
    }
    assert set(BEHAVIOUR_NAMES) <= {one.name for one in outcomes}


def cut_off(folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def flip_a_bit(folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-50] ^= 1
    (folder / WEIGHTS).write_bytes(content)


def put_nan(folder):
    change_weights(folder, lambda weights: weights["model.encoder.layers.0.fc1.weight"][0, 0].fill_(float("nan")))


def lose_a_tensor(folder):
    change_weights(folder, lambda weights: weights.pop("model.decoder.layers.0.fc2.bias"))


def untie(folder):
    def add(weights):
        weights["lm_head.weight"] = torch.zeros_like(weights["model.encoder.embed_tokens.weight"])

    change_weights(folder, add)


def shrink(folder):
    change_json(folder / "config.json", encoder_ffn_dim=16)


BROKEN_FILES = {
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "files", f"no {WEIGHTS}"),
    "no pipeline": (lambda folder: (folder / "pipeline_vanilla_transformer.py").unlink(), "files", "no pipeline_"),
    "a pickle": (lambda folder: (folder / "pytorch_model.bin").touch(), "no pickle", "pytorch_model.bin"),
    "weights cut off": (cut_off, "weights", "cut off or damaged"),
    "weights with NaN": (put_nan, "weights", "fc1.weight in model.safetensors holds values that are not finite"),
    "a tensor less": (lose_a_tensor, "weights", "fc2.bias is not in the files"),
    "a tied tensor twice": (untie, "weights", "lm_head.weight is in the files"),
    "another shape": (shrink, "weights", r"is (32,), the configuration has (16,)"),
    "a flipped bit": (flip_a_bit, "hashes", "not the file that the card lists"),
    "an unlisted file": (lambda folder: (folder / "LICENSE").touch(), "hashes", "does not list LICENSE"),
    "no card": (lambda folder: (folder / "README.md").unlink(), "card", "render it"),
    "no list of files": (lambda folder: (folder / "README.md").unlink(), "hashes", "no card that lists the files"),
    "a card without language": (
        lambda folder: replace(folder / "README.md", "language:\n- en\n- de\n", ""),
        "card",
        "lacks language",
    ),
    "a card with a gap": (
        lambda folder: replace(folder / "README.md", "## Limits", "## {{ name }}"),
        "card",
        "not filled: {{ name }}",
    ),
    "an end that there is not": (
        lambda folder: change_json(folder / "generation_config.json", early_stopping="sometimes"),
        "generation config",
        "early_stopping",
    ),
    "other code": (
        lambda folder: replace(folder / MODELING, "import math", "import math  # mine"),
        "code",
        f"{MODELING} is not that of this package",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_FILES)
def test_a_broken_folder_fails(fault, folder, without_a_process):
    assert not failed(checks.check_folder(folder))
    break_it, name, detail = BROKEN_FILES[fault]
    break_it(folder)
    found = failed(checks.check_folder(folder))
    assert detail in found[name]


def see_the_future(folder):
    replace(folder / MODELING, "staticmethod(create_causal_mask)", "staticmethod(lambda *_, **__: None)")
    replace(folder / MODELING, "self.is_causal = is_causal", "self.is_causal = False")


def other_tokenizer(folder):
    words = [
        f"{one}{other}"
        for one in ("ab", "cd", "ef", "gh")
        for other in ("kl", "mn", "op", "qr", "st", "uv", "wx", "yz")
    ]
    large = VanillaTransformerTokenizer.train_from_iterator(words * 2, vocab_size=320)
    large.save_pretrained(folder)


def lossy_tokenizer(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, content["normalizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(content))


IGNORES_PADDING = "attention_mask = source_mask(self.config, input_ids, attention_mask)"
TIED = 'self._tied_weights_keys = {"lm_head.weight": f"model.{shared}.embed_tokens.weight"}'
BROKEN_BEHAVIOUR = {
    "sees the future": (
        see_the_future,
        "future tokens",
        "before a changed token differ",
    ),
    "looks at padding": (
        lambda folder: replace(folder / MODELING, IGNORES_PADDING, "attention_mask = None"),
        "padding and batches",
        "in a padded batch and alone differ",
    ),
    "forgets where it is": (
        lambda folder: replace(folder / MODELING, "past = past_key_values.get_seq_length() if", "past = 0 if"),
        "cache",
        "with a cache and without one differ",
    ),
    "ties by copying": (
        lambda folder: replace(folder / MODELING, TIED, "self._tied_weights_keys = {}"),
        "ties",
        "must be the target embedding itself",
    ),
    "another wavelength": (
        lambda folder: replace(folder / MODELING, "math.log(10000.0)", "math.log(1000.0)"),
        "positions",
        "differ from section 3.5",
    ),
    "a tokenizer of another model": (other_tokenizer, "tokenizer", "a vocabulary of 300"),
    "a tokenizer that loses capitals": (lossy_tokenizer, "tokenizer", "comes back as 'a man is sleeping.'"),
    "another start": (
        lambda folder: change_json(folder / "generation_config.json", decoder_start_token_id=7),
        "generation",
        "decoder_start_token_id is 7, that of the model 1",
    ),
}


def behaviour_of(folder):
    """Of the folder's own code, loaded as the Hub's is."""
    name = "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration"
    model = get_class_from_dynamic_module(name, folder).from_pretrained(folder, dtype=torch.float32)
    outcomes = check_behaviour(model, AutoTokenizer.from_pretrained(folder))
    return {one["name"]: one["detail"] for one in outcomes if not one["passed"]}


@pytest.mark.parametrize("fault", BROKEN_BEHAVIOUR)
def test_a_model_that_misbehaves_fails(fault, folder):
    break_it, name, detail = BROKEN_BEHAVIOUR[fault]
    break_it(folder)
    assert detail in behaviour_of(folder)[name]


def test_what_is_whole_behaves(folder):
    assert not behaviour_of(folder)


def test_code_that_does_not_stand_alone_fails_where_it_is_trusted(folder):
    (folder / "pipeline_vanilla_transformer.py").unlink()
    found = failed(checks.check_folder(folder, trust_remote_code=True))
    assert "pipeline_vanilla_transformer" in found["stands alone"]
    assert set(BEHAVIOUR_NAMES) <= found.keys(), "what was not checked must not pass"


def test_other_translations_than_with_this_package_fail(folder):
    replace(folder / "pipeline_vanilla_transformer.py", "text.strip() for text", "text.strip() + '!' for text")
    found = failed(checks.check_folder(add_card(folder), trust_remote_code=True))
    assert found.keys() == {"same here"}
    assert "with this package and" in found["same here"]


def test_the_command_prints_a_table_and_ends_with_a_status(folder, without_a_process, capsys):
    assert main(["check-model", str(folder)]) == 0
    assert "ok    weights" in capsys.readouterr().out
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(SystemExit, match="cannot be published: 1 of 7 checks failed"):
        main(["check-model", str(folder)])
    assert "FAIL  no pickle" in capsys.readouterr().out


def test_a_folder_that_is_none_is_named(tmp_path, capsys):
    assert main(["check-model", str(tmp_path / "none")]) == 2
    assert "which is none" in capsys.readouterr().err


def test_what_training_leaves_beside_the_model_is_no_fault(folder, without_a_process):
    (folder / "metrics.jsonl").touch()
    (folder / "checkpoint-5").mkdir()
    assert not failed(checks.check_folder(folder))
    shutil.rmtree(folder / "checkpoint-5")
