"""Importing this package: little work, and the Auto classes know it whatever is imported first."""

import subprocess
import sys
from pathlib import Path

import pytest

import vanilla_transformer

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("*.py"))
KNOWN = """
from transformers import AutoModel, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from transformers.pipelines import PIPELINE_REGISTRY
config = CONFIG_MAPPING["vanilla_transformer"]
assert config in AutoModel._model_mapping and config in AutoModelForSeq2SeqLM._model_mapping
assert config in TOKENIZER_MAPPING
assert "translation" in PIPELINE_REGISTRY.supported_tasks
import sys
assert not any(type(finder).__module__.startswith("vanilla_transformer") for finder in sys.meta_path)
"""


def run(program):
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    "first",
    [
        "import vanilla_transformer",
        "from transformers import pipeline, AutoTokenizer; import vanilla_transformer",
        "from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerModel",
        pytest.param(
            "from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline", marks=pytest.mark.slow
        ),
        pytest.param(
            "from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_auto_classes_know_the_package_whatever_is_imported_first(first):
    run(first + KNOWN)


def test_importing_the_package_imports_no_torch():
    run("import sys, vanilla_transformer; assert 'torch' not in sys.modules and 'transformers' not in sys.modules")


def test_the_names_of_the_package_are_there_and_no_others():
    for name in vanilla_transformer.__all__:
        assert getattr(vanilla_transformer, name).__name__ == name and name in dir(vanilla_transformer)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = vanilla_transformer.Nothing


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_help_comes_at_once(script):
    """Nothing is imported that takes seconds, whatever the machine does meanwhile."""
    modules = subprocess.run(
        [sys.executable, "-X", "importtime", str(script), "--help"], capture_output=True, text=True, timeout=120
    )
    assert modules.returncode == 0 and "usage:" in modules.stdout
    imported = {line.split("|")[-1].strip() for line in modules.stderr.splitlines()}
    slow = {"accelerate", "datasets", "sacrebleu", "transformers.modeling_utils", "transformers.pipelines"}
    assert not imported & slow
    assert script.stem == "train" or "torch" not in imported  # the flags of train are those of the configuration
