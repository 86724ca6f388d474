"""Importing the package registers its classes, in any order of imports."""

import json
import subprocess
import sys

import pytest

import vanilla_transformer
from tests.processes import run_python
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer.cli import COMMANDS
from vanilla_transformer.loading.model_folders import save_model_folder

REGISTERED = """
from transformers import AutoModel, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from transformers.pipelines import PIPELINE_REGISTRY
config = CONFIG_MAPPING["vanilla_transformer"]
assert config in AutoModel._model_mapping and config in AutoModelForSeq2SeqLM._model_mapping
assert config in TOKENIZER_MAPPING
assert "translation" in PIPELINE_REGISTRY.supported_tasks
from vanilla_transformer import TranslationPipeline
assert TranslationPipeline.steps
"""


@pytest.mark.parametrize(
    "first",
    [
        "import vanilla_transformer",
        "from transformers import pipeline, AutoTokenizer; import vanilla_transformer",
        "from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerModel",
    ],
)
def test_package_registers_its_classes_in_any_order_of_imports(first):
    ended = run_python("-c", first + REGISTERED)
    assert ended.returncode == 0, ended.stderr


TRANSLATE = """
import re, sys
import vanilla_transformer
from transformers import AutoModelForSeq2SeqLM, pipeline
names = "engine|constraints|ensemble|documents"
def imported():
    return {name for name in sys.modules if re.match(rf"vanilla_transformer[.](.*[.])?({names})($|[.])", name)}
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
assert not imported(), imported()
assert pipeline("translation", model=sys.argv[1])("A man.")
assert "vanilla_transformer.decoding.engine.engine" in imported()
assert vanilla_transformer.Engine is sys.modules["vanilla_transformer.decoding.engine.engine"].Engine
"""
LOAD_LONG = """
import sys
import vanilla_transformer
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
assert type(model) is vanilla_transformer.VanillaTransformerLongForConditionalGeneration
assert isinstance(model, AutoModelForSeq2SeqLM._model_mapping[type(model.config)])
assert type(AutoModel.from_config(model.config)) is vanilla_transformer.VanillaTransformerLongModel
assert model.generate(model.dummy_inputs["input_ids"], max_new_tokens=2).shape[1] <= 3
"""


@pytest.mark.parametrize(
    ("build", "program"), [(tiny_model, TRANSLATE), (tiny_long_model, LOAD_LONG)]
)
def test_package_imports_the_engine_at_first_use(build, program, tiny_tokenizer, tmp_path):
    folder = str(save_model_folder(build(), tiny_tokenizer, tmp_path / "model"))
    ended = run_python("-c", program, folder)
    assert ended.returncode == 0, ended.stderr


def test_package_has_its_public_names_and_no_others():
    for name in vanilla_transformer.__all__:
        assert getattr(vanilla_transformer, name).__name__ == name and name in dir(
            vanilla_transformer
        )
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = vanilla_transformer.Nothing


ANSWERS = """
import contextlib, io, json, sys
lines, sys.argv = json.loads(sys.argv[1]), sys.argv[2:]
from vanilla_transformer.cli import main
found = []
for words in lines:
    printed, status = io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
        status = main(words)
    found.append([status, printed.getvalue(), sorted({"torch", "transformers", "numpy", "datasets"} & {*sys.modules})])
import vanilla_transformer
from vanilla_transformer.cli.flags import register_models
register_models()
from transformers import AutoModelForSeq2SeqLM
assert AutoModelForSeq2SeqLM._model_mapping[vanilla_transformer.VanillaTransformerConfig]
print(json.dumps(found))
"""
LINES = [
    ["--help"],
    ["--version"],
    ["train", "--bogus"],
    ["translate", "--num_beam", "2"],
    ["trian"],
]
LINES += [[name, flag] for name in COMMANDS for flag in ("--help", "--help-all")]


@pytest.fixture(scope="module")
def answers():
    """Return the status, the text and the imported packages after each of the lines, given to one
    process.
    """
    command = [sys.executable, "-c", ANSWERS, json.dumps(LINES), "vanilla-transformer"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_command_line_answers_help_and_mistakes_without_torch(answers):
    assert [status for status, _, _ in answers] == [0, 0, 2, 2, 2] + [0] * 2 * len(COMMANDS)
    starts = [
        "usage: ",
        "vanilla-transformer 0",
        "error: There is no flag 'bogus'",
        "error: There is no flag 'num_beam'",
    ]
    assert all(text.startswith(start) for start, (_, text, _) in zip(starts, answers, strict=False))
    assert all(text.startswith("usage: ") for _, text, _ in answers[5:])
    assert [imported for _, _, imported in answers] == [[]] * len(LINES)
