"""Random recipes, corpora and configurations: they work, or raise the errors that commands show as
one line.
"""

import json
import tempfile
import traceback
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.sweeps import examples
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.decoding.pretrained import load_pretrained
from vanilla_transformer.errors import is_refusal
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.training.recipe import Recipe, parse_recipe

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3)
)
JSON_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.just(2**70)
    | st.floats()
    | st.text(max_size=20)
)
JSON_VALUES = (
    JSON_SCALARS
    | st.lists(JSON_SCALARS, max_size=3)
    | st.dictionaries(st.text(max_size=9), JSON_SCALARS)
)
FLAGS = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
RECIPE_KEYS = [
    "max_steps",
    "corpora",
    "d_model",
    "dropout",
    "seed",
    "save_minutes",
    "layer_types",
    "vocab_size",
]
RECIPE_KEYS += [
    "lr_scheduler",
    "learning_rate",
    "report_to",
    "fsdp",
    "dataset",
    "bpe_dropout",
    "augment",
    "stages",
]
RECIPE_KEYS += ["drop", "validation"]
CONFIG_KEYS = [
    "d_model",
    "vocab_size",
    "encoder_layers",
    "decoder_attention_heads",
    "dropout",
    "activation_function",
]
CONFIG_KEYS += [
    "pad_token_id",
    "eos_token_id",
    "dtype",
    "auto_map",
    "model_type",
    "architectures",
    "layer_types",
]


@given(st.dictionaries(st.sampled_from(RECIPE_KEYS) | SCALARS, VALUES, max_size=4))
@examples(100)
def test_parse_recipe_raises_mistakes_only(recipe):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(
            yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8", errors="surrogatepass"
        )
        try:
            assert isinstance(parse_recipe([str(path), *FLAGS]), Recipe)
        except Exception as error:
            assert is_refusal(error) and str(error), traceback.format_exc()


@given(
    content=st.binary(max_size=200)
    | st.text(alphabet='a\t\n\r\0\u2028{}":é', max_size=60).map(str.encode),
    name=st.sampled_from(["a.tsv", "a.tsv.gz", "a.tsv.xz", "a.jsonl", "a.parquet"]),
)
@examples(60)
def test_load_texts_raises_mistakes_only(content, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            texts = load_texts(DataArguments(corpora=[{"file": str(path)}], cache_dir=folder))
            assert len(texts.training.dataset)
        except Exception as error:
            assert is_refusal(error) and str(error), traceback.format_exc()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    from tests.tiny import tiny_model, tiny_tokenizer
    from vanilla_transformer.loading.model_folders import save_model_folder

    return save_model_folder(
        tiny_model(), tiny_tokenizer(), tmp_path_factory.mktemp("fuzz") / "model"
    )


@given(changes=st.dictionaries(st.sampled_from(CONFIG_KEYS), JSON_VALUES, min_size=1, max_size=2))
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_load_pretrained_raises_mistakes_only(model_folder, changes):
    path = model_folder / "config.json"
    original = path.read_text()
    path.write_text(json.dumps(json.loads(original) | changes))
    try:
        model = load_pretrained(VanillaTransformerForConditionalGeneration, model_folder)
        assert isinstance(model, VanillaTransformerForConditionalGeneration)
    except Exception as error:
        assert is_refusal(error) and str(error), traceback.format_exc()
    finally:
        path.write_text(original)
