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

SCALARS = st.none() | st.booleans() | st.integers() | st.floats()
SCALARS |= st.text(max_size=20) | st.dates()


def lists_and_mappings(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3)


VALUES = st.recursive(SCALARS, lists_and_mappings)
JSON_SCALARS = st.none() | st.booleans() | st.integers(-3, 40) | st.just(2**70)
JSON_SCALARS |= st.floats() | st.text(max_size=20)
JSON_VALUES = JSON_SCALARS | st.lists(JSON_SCALARS, max_size=3)
JSON_VALUES |= st.dictionaries(st.text(max_size=9), JSON_SCALARS)
LETTERS = st.text(alphabet='a\t\n\r\0\u2028{}":é', max_size=60).map(str.encode)
NAMES = st.sampled_from(["a.tsv", "a.tsv.gz", "a.tsv.xz", "a.jsonl", "a.parquet"])
FLAGS = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
RECIPE_KEYS = ["max_steps", "corpora", "d_model", "dropout", "seed", "save_minutes"]
RECIPE_KEYS += ["layer_types", "vocab_size", "lr_scheduler", "learning_rate"]
RECIPE_KEYS += ["report_to", "fsdp", "dataset", "bpe_dropout", "augment", "stages"]
RECIPE_KEYS += ["drop", "validation"]
CONFIG_KEYS = ["d_model", "vocab_size", "encoder_layers", "decoder_attention_heads"]
CONFIG_KEYS += ["dropout", "activation_function", "pad_token_id", "eos_token_id"]
CONFIG_KEYS += ["dtype", "auto_map", "model_type", "architectures", "layer_types"]
CHANGES = st.dictionaries(st.sampled_from(CONFIG_KEYS), JSON_VALUES, min_size=1, max_size=2)


@given(st.dictionaries(st.sampled_from(RECIPE_KEYS) | SCALARS, VALUES, max_size=4))
@examples(100)
def test_parse_recipe_raises_mistakes_only(recipe):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        text = yaml.safe_dump(recipe, allow_unicode=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            assert isinstance(parse_recipe([str(path), *FLAGS]), Recipe)
        except Exception as error:
            assert is_refusal(error) and str(error), traceback.format_exc()


@given(content=st.binary(max_size=200) | LETTERS, name=NAMES)
@examples(60)
def test_load_texts_raises_mistakes_only(content, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            corpora = [{"file": str(path)}]
            texts = load_texts(DataArguments(corpora=corpora, cache_dir=folder))
            assert len(texts.training.dataset)
        except Exception as error:
            assert is_refusal(error) and str(error), traceback.format_exc()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    from tests.tiny import tiny_model, tiny_tokenizer
    from vanilla_transformer.loading.model_folders import save_model_folder

    folder = tmp_path_factory.mktemp("fuzz") / "model"
    return save_model_folder(tiny_model(), tiny_tokenizer(), folder)


@given(changes=CHANGES)
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_load_pretrained_raises_mistakes_only(model_folder, changes):
    path = model_folder / "config.json"
    original = path.read_text()
    path.write_text(json.dumps(json.loads(original) | changes))
    try:
        model_class = VanillaTransformerForConditionalGeneration
        model = load_pretrained(model_class, model_folder)
        assert isinstance(model, model_class)
    except Exception as error:
        assert is_refusal(error) and str(error), traceback.format_exc()
    finally:
        path.write_text(original)
