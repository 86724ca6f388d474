"""Importing the package registers its classes, in any order of imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vanilla_transformer
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer.file_utils import save_model_folder

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("*.py"))
REGISTERED = """
from transformers import AutoModel, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
config = CONFIG_MAPPING["vanilla_transformer"]
assert config in AutoModel._model_mapping and config in AutoModelForSeq2SeqLM._model_mapping
assert config in TOKENIZER_MAPPING
assert "translation" in PIPELINE_REGISTRY.supported_tasks
assert "vanilla_transformer_int8" in AUTO_QUANTIZER_MAPPING
from vanilla_transformer import PaperGenerationMixin, TranslationPipeline
assert PaperGenerationMixin.fast_search and TranslationPipeline.backends
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
    ended = subprocess.run([sys.executable, "-c", first + REGISTERED], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


TRANSLATE = """
import re, sys
import vanilla_transformer
from transformers import AutoModelForSeq2SeqLM, pipeline
names = "engine|constraints|ensemble|documents|lsh_attention|linear_attention|modeling_vanilla_transformer_long"
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
assert "vanilla_transformer.modeling_vanilla_transformer_long" not in sys.modules
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1])
assert type(model) is vanilla_transformer.VanillaTransformerLongForConditionalGeneration
assert isinstance(model, AutoModelForSeq2SeqLM._model_mapping[type(model.config)])
assert type(AutoModel.from_config(model.config)) is vanilla_transformer.VanillaTransformerLongModel
assert model.generate(model.dummy_inputs["input_ids"], max_new_tokens=2).shape[1] <= 3
"""


@pytest.mark.parametrize(("build", "program"), [(tiny_model, TRANSLATE), (tiny_long_model, LOAD_LONG)])
def test_package_imports_the_engine_and_long_models_at_first_use(build, program, tiny_tokenizer, tmp_path):
    folder = str(save_model_folder(build(), tiny_tokenizer, tmp_path / "model"))
    command = [sys.executable, "-c", program, folder]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_package_has_its_public_names_and_no_others():
    for name in vanilla_transformer.__all__:
        assert getattr(vanilla_transformer, name).__name__ == name and name in dir(vanilla_transformer)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = vanilla_transformer.Nothing


PRINT_HELP = """
import contextlib, io, json, runpy, sys
for script in sys.argv[1:]:
    before, printed, sys.argv = set(sys.modules), io.StringIO(), [script, "--help"]
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    print(json.dumps([printed.getvalue(), sorted(set(sys.modules) - before)]))
"""


@pytest.fixture(scope="module")
def helps():
    """Return the text that each script prints for `--help`, and the modules that it imports, in one process."""
    command = [sys.executable, "-c", PRINT_HELP, *map(str, SCRIPTS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return dict(zip(SCRIPTS, map(json.loads, ended.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_prints_help_without_heavy_imports(script, helps):
    """Registering the models imports torch and transformers; nothing else that takes seconds is imported."""
    printed, imported = helps[script]
    assert "usage:" in printed
    assert not set(imported) & {"datasets", "sacrebleu", "matplotlib"}
