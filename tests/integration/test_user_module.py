"""A model is its class: `--user_module` and `model_class`, every door that loads it, and the file
that travels.
"""

import json
import sys

import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

from tests.processes import run_python
from tests.tiny import TINY_SIZES, TINY_VOCAB_SIZE, tiny_config, tiny_model
from tests.tiny_runs import flags, no_scores
from vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.pretrained import hash_model
from vanilla_transformer.extensions.conversion.common import load_model
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.device_batch import should_pack
from vanilla_transformer.training.loss import ModelWithLoss, cross_entropy
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.user_input.user_modules import USER_MODULE, use_user_module

ROLLED = """
from vanilla_transformer import VanillaTransformerForConditionalGeneration

class Rolled(VanillaTransformerForConditionalGeneration):
    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        outputs["logits"] = outputs["logits"].roll(1, dims=-1)
        return outputs
"""
WITH_A_CONFIGURATION = """
from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

@strict
class ScaledConfig(VanillaTransformerConfig):
    model_type = "scaled_transformer"
    logit_scale: float = 0.5

class Scaled(VanillaTransformerForConditionalGeneration):
    config_class = ScaledConfig

    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        outputs["logits"] = outputs["logits"] * self.config.logit_scale
        return outputs

AutoConfig.register("scaled_transformer", ScaledConfig)
AutoModelForSeq2SeqLM.register(ScaledConfig, Scaled)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module of a user and imports it; it is forgotten
    afterwards.
    """
    names = []
    monkeypatch.setenv(USER_MODULE, "")

    def write(code):
        names.append(f"user_module_{abs(hash((code, str(tmp_path))))}")
        path = tmp_path / f"{names[-1]}.py"
        path.write_text(code)
        use_user_module(path)
        return path, sys.modules[names[-1]]

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_model_is_loaded_as_the_class_that_saved_it(module, tiny_tokenizer, tmp_path):
    _, user = module(ROLLED)
    model = user.Rolled(tiny_config()).eval()
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    base = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "base")
    paper_class = VanillaTransformerForConditionalGeneration
    for kind in (AutoModelForSeq2SeqLM, paper_class, user.Rolled):
        assert type(kind.from_pretrained(folder)) is user.Rolled
    assert type(AutoModel.from_pretrained(folder)) is VanillaTransformerModel
    assert type(user.Rolled.from_pretrained(base)) is user.Rolled
    assert type(AutoModelForSeq2SeqLM.from_pretrained(base)) is paper_class


def test_identity_of_a_model_has_the_module_of_the_user(module, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "model")
    plain = hash_model(folder)
    path, _ = module(ROLLED)
    before = hash_model(folder)
    path.write_text(ROLLED.replace("roll(1", "roll(2"))
    after = hash_model(folder)
    assert plain.items() < before.items() and plain.items() < after.items()
    assert before != after


LOADING = """
import sys
from transformers import AutoModelForSeq2SeqLM, pipeline
import vanilla_transformer
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.decoding.loading import load_pipeline
for load in (AutoModelForSeq2SeqLM.from_pretrained, VanillaTransformerForConditionalGeneration.from_pretrained,
             load_pipeline, lambda folder: pipeline("translation", model=folder)):
    try:
        load(sys.argv[1])
        print("loaded")
    except ValueError as error:
        print("must be loaded as its class `Rolled`" in str(error))
"""


def check_translates_with_its_module_only(folder, path, message):
    words = ["-m", "vanilla_transformer", "translate", folder, "A man."]
    words += ["--num_beams", "1"]
    ended = run_python(*words, env={"PATH": ""})
    assert ended.returncode == 2 and ended.stderr.startswith("error: ")
    assert message in ended.stderr and "--user_module" in ended.stderr
    module = ["--user_module", folder / path.name]
    translated = run_python(*words, *module, env={"PATH": ""})
    assert translated.returncode == 0, translated.stderr


def test_model_of_an_unknown_class_is_refused(module, tiny_tokenizer, tmp_path):
    """Refuse it at every door, and let its file travel."""
    path, user = module(ROLLED)
    model = user.Rolled(tiny_config())
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    assert (folder / path.name).read_text() == ROLLED
    config = json.loads((folder / "config.json").read_text())
    classes = config["auto_map"]
    assert classes["AutoModelForSeq2SeqLM"] == f"{path.stem}.Rolled"
    assert "custom_pipelines" not in config
    for name in classes.values():
        assert (folder / f"{name.split('.')[0]}.py").exists()
    refused = run_python("-c", LOADING, folder, env={"PATH": ""})
    assert refused.stdout.split() == ["True"] * 4, refused
    check_translates_with_its_module_only(folder, path, "Rolled")


def test_model_with_its_own_configuration_loads(module, tiny_tokenizer, tmp_path):
    """Load it by the module that travels."""
    path, user = module(WITH_A_CONFIGURATION)
    config = user.ScaledConfig(vocab_size=TINY_VOCAB_SIZE, **TINY_SIZES)
    folder = save_model_folder(user.Scaled(config), tiny_tokenizer, tmp_path / "model")
    saved = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": f"{path.stem}.ScaledConfig"}
    classes["AutoModelForSeq2SeqLM"] = f"{path.stem}.Scaled"
    assert saved["auto_map"] == classes
    check_translates_with_its_module_only(folder, path, "`model_type`")


def test_training_computes_the_loss_by_forward_of_the_class(module):
    _, user = module(ROLLED)
    model = user.Rolled(tiny_config(dropout=0.0))
    batch = {"input_ids": torch.tensor([[5, 6, 2]])}
    batch |= {"attention_mask": torch.ones(1, 3).long()}
    batch |= {"labels": torch.tensor([[7, 8, 2]])}
    places = {"label_places": torch.arange(3)}
    loss = ModelWithLoss(model, 0.1)(batch | places)
    expected = cross_entropy(model(**batch).logits, batch["labels"], 0.1)
    torch.testing.assert_close(loss.smoothed, expected.smoothed)
    assert not should_pack(None, model, True, torch.device("cuda"))
    with pytest.raises(ValueError, match="another kind of model"):
        should_pack(True, model, True, torch.device("cpu"))


def test_train_keeps_the_class(module, corpus, tiny_tokenizer, tmp_path):
    """Start it from a model of its base."""
    path, user = module(ROLLED)
    base = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "base")
    changes = dict.fromkeys([*TINY_SIZES, "vocab_size"])
    changes |= {"max_steps": 2, "eval_steps": 2, "save_steps": 1}
    changes |= {"user_module": path, "model_class": "Rolled"}
    recipe = parse_recipe(flags(corpus, tmp_path / "run", init_from=base, **changes))
    folder = train(recipe, evaluate=no_scores)
    assert type(AutoModelForSeq2SeqLM.from_pretrained(folder)) is user.Rolled
    assert (folder / path.name).exists()
    assert (folder / "checkpoint-2" / path.name).exists()
    output, checkpoint = tmp_path / "mean", folder / "checkpoint-1"
    words = [str(folder), str(checkpoint), "--output_dir", str(output)]
    assert main(["average-checkpoints", *words]) == 0
    assert type(AutoModelForSeq2SeqLM.from_pretrained(output)) is user.Rolled
    message = "must be a VanillaTransformerForConditionalGeneration itself"
    with pytest.raises(ValueError, match=message):
        load_model(VanillaTransformerForConditionalGeneration, folder)


UNKNOWN_CLASS = "`model_class` must be one of VanillaTransformerForConditionalGeneration, "
NO_FILE = "`user_module` must be a file of Python such as my_model.py, got none.py."
IMPORTED = "`user_module` must have another name, since 'torch' is imported."
REVERSIBLE = ["--model_class", "Rolled", "--reversible", "--normalize_before"]
WRONG = [
    (["--model_class", "Nothing"], UNKNOWN_CLASS),
    (["--user_module", "none.py"], NO_FILE),
    (
        ["--user_module", "broken.py"],
        "broken.py cannot be imported: line 2: ZeroDivisionError: ",
    ),
    (["--user_module", "torch.py"], IMPORTED),
    (REVERSIBLE, "VanillaTransformerLongForConditional"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_modules_and_classes_are_refused_in_one_line(
    words, message, module, corpus, tmp_path, monkeypatch, capsys
):
    module(ROLLED)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("x = 0\n1 / x\n")
    (tmp_path / "torch.py").touch()
    assert main(["train", *flags(corpus, tmp_path / "run"), *words]) == 2
    line = capsys.readouterr().err.splitlines()[-1]  # after what it has read
    assert line.startswith("error: ") and message in line
    assert not (tmp_path / "run" / "config.json").exists()
