"""Recipes and flags: what does not exist or cannot work is named before anything is read."""

from dataclasses import fields
from pathlib import Path

import pytest

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.data.arguments import corpus_specs
from vanilla_transformer.data.readers import CorpusSpec
from vanilla_transformer.training.arguments import LongArguments, ModelArguments, parse_recipe
from vanilla_transformer.training.recipe import read_recipe

FILES = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
RECIPES = sorted((Path(__file__).parents[3] / "recipes").glob("*.yaml"))


@pytest.fixture
def recipe_file(tmp_path):
    def write(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_the_defaults_are_the_papers():
    recipe = parse_recipe(FILES)
    assert (recipe.optimization.warmup_steps, recipe.optimization.max_steps) == (4000, 100_000)
    assert (recipe.optimization.adam_beta1, recipe.optimization.adam_beta2) == (0.9, 0.98)
    assert (recipe.optimization.adam_epsilon, recipe.optimization.label_smoothing) == (1e-9, 0.1)
    assert (recipe.data.vocab_size, recipe.data.max_tokens, recipe.output.average_checkpoints) == (37000, 25000, 5)


def test_the_fields_for_long_sequences_are_flags_with_the_configurations_types():
    own = {item.name: item for item in fields(VanillaTransformerLongConfig)}
    for item in fields(LongArguments):
        assert LongArguments.__annotations__[item.name] == own[item.name].type
        assert item.name == "attention" or item.default == own[item.name].default
    added = VanillaTransformerLongConfig.__annotations__.keys() - VanillaTransformerConfig.__annotations__.keys()
    assert {name for name in added if name in own} == {item.name for item in fields(LongArguments)}


def test_every_field_of_the_model_is_a_flag_with_the_configurations_type_and_default():
    derived = {"vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings", "max_source_length"}
    derived |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "is_encoder_decoder"}
    own = VanillaTransformerConfig.__annotations__.keys() - derived
    chosen = {item.name: (item.type, item.default) for item in fields(VanillaTransformerConfig) if item.name in own}
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        assert chosen[name][0] == float | int  # a flag takes whole numbers as floats
        chosen[name] = (float, chosen[name][1])
    types = ModelArguments.__annotations__  # what is in the fields the library's parser changes
    assert {item.name: (types[item.name], item.default) for item in fields(ModelArguments)} == chosen


def test_flags_win_over_the_recipe_and_the_recipe_over_defaults(recipe_file):
    path = recipe_file("d_model: 64\ndropout: 0.3\nnormalize_before: true\n")
    recipe = parse_recipe([path, "--dropout", "0.2", *FILES])
    assert (recipe.model.d_model, recipe.model.dropout, recipe.model.encoder_layers) == (64, 0.2, 6)
    assert recipe.model.normalize_before is True


def test_an_unknown_flag_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="no flag 'warmup_step'. Did you mean 'warmup_steps'?"):
        parse_recipe([*FILES, "--warmup_step", "3"])


def test_an_unknown_recipe_key_is_answered_with_the_nearest(recipe_file):
    with pytest.raises(ValueError, match="no recipe key 'drop_out'. Did you mean 'dropout'?"):
        parse_recipe([recipe_file("drop_out: 0.1\n"), *FILES])


def test_a_missing_recipe_is_named():
    with pytest.raises(FileNotFoundError, match="no recipe nowhere.yaml"):
        parse_recipe(["nowhere.yaml", *FILES])


@pytest.mark.parametrize(("text", "message"), [("- 1\n", "got list"), ("a: [\n", "must be YAML")])
def test_a_recipe_that_is_no_mapping_is_refused(recipe_file, text, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe([recipe_file(text), *FILES])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max_tokens", "0"], "`max_tokens` must be at least 1, got 0"),
        (["--warmup_steps", "-1"], "`warmup_steps` must not be negative, got -1"),
        (["--label_smoothing", "1"], r"`label_smoothing` must be in \[0, 1\), got 1.0"),
        (["--dataset", "x"], "either `dataset` or text files"),
        (["--validation_source", "v.en"], "given together"),
        (["--tokenizer", "t", "--tokenizer_model", "unigram"], "either `tokenizer` or `tokenizer_model`, got t and"),
        (["--bpe_dropout", "1"], r"`bpe_dropout` must be in \[0, 1\), got 1.0"),
        (["--bpe_dropout", "nan"], "`bpe_dropout` must be a finite number, got nan"),
        (["--bpe_dropout", "0.1", "--tokenizer_model", "unigram"], "`bpe_dropout` must be 0 .*got 0.1 with unigram"),
        (["--test_target", "t.de"], "`test_source` and `test_target` must be given together"),
        (["--corpora", "[{file: a.tsv}]"], "Give either .* got `corpora` and `train_source`"),
        (["--max_length", "0"], "`max_length` must be at least 1, got 0"),
        (["--max_length_ratio", "0.5"], "`max_length_ratio` must be at least 1, got 0.5"),
        (["--stream_window", "0"], "`stream_window` must be at least 1, got 0"),
        (["--fsdp", "--mixed_precision", "fp16"], "`fsdp` goes with `mixed_precision` bf16 or no, got fp16"),
        (["--stream", "--drop_duplicates"], "`drop_duplicates` needs to see all corpora .*`stream`"),
    ],
)
def test_values_that_cannot_work_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe([*FILES, *flags])


def test_a_model_of_tokenizer_that_does_not_exist_is_refused():
    assert parse_recipe([*FILES, "--tokenizer_model", "wordpiece"]).data.tokenizer_model == "wordpiece"
    with pytest.raises(ValueError, match="^--tokenizer_model.* invalid choice: 'sentencepiece'"):
        parse_recipe([*FILES, "--tokenizer_model", "sentencepiece"])


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="`train_target` must be given"):
        parse_recipe(["--train_source", "a.en", "--output_dir", "out"])
    with pytest.raises(ValueError, match="`output_dir` must be given"):
        parse_recipe(FILES[:4])
    with pytest.raises(ValueError, match="`source_language` must be given with a `dataset`"):
        parse_recipe(["--dataset", "x", "--output_dir", "out"])


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_shipped_recipe_parses(path):
    named = {"dataset", "train_source"} & read_recipe(path).keys()
    recipe = parse_recipe([str(path), *(["--output_dir", "out"] if named else FILES)])
    VanillaTransformerConfig(**vars(recipe.model))


MIX = """
source_language: en
target_language: de
corpora:
  - {source: a.en.xz, target: "a: b.de"}
  - {file: b.tsv.gz, weight: 0.5, split: null}
  - {dataset: "wmt14:fr-en", split: test, source_language: fr}
"""


def test_a_recipe_lists_its_corpora_which_share_its_languages(recipe_file):
    recipe = parse_recipe([recipe_file(MIX), "--output_dir", "out"])
    common = {"source_language": "en", "target_language": "de"}
    assert corpus_specs(recipe.data) == [
        CorpusSpec(source="a.en.xz", target="a: b.de", **common),
        CorpusSpec(file="b.tsv.gz", weight=0.5, **common),
        CorpusSpec(dataset="wmt14:fr-en", split="test", source_language="fr", target_language="de"),
    ]


def test_a_flag_lists_corpora_as_json_and_wins_over_the_recipe(recipe_file):
    recipe = parse_recipe([recipe_file(MIX), "--output_dir", "out", "--corpora", '[{"file": "c.jsonl"}]'])
    assert recipe.data.corpora == [{"file": "c.jsonl"}]


def test_files_and_a_dataset_are_corpora_too():
    assert corpus_specs(parse_recipe(FILES).data) == [CorpusSpec(source="a.en", target="a.de")]
    dataset = ["--dataset", "x", "--source_language", "en", "--target_language", "de", "--output_dir", "out"]
    expected = CorpusSpec(dataset="x", source_language="en", target_language="de")
    assert corpus_specs(parse_recipe(dataset).data) == [expected]


@pytest.mark.parametrize(
    ("corpora", "message"),
    [
        ("[{file: a.tsv, wieght: 2}]", "There is no key of a corpus 'wieght'. Did you mean 'weight'?"),
        ("[{file: a.tsv, no_weight: 2}]", "There is no key of a corpus 'no_weight'"),
        ("[{file: a.csv}]", "must end with .tsv"),
        ("[a.tsv]", "must be a mapping, such as .* got 'a.tsv'"),
        ("{file: a.tsv}", "`corpora` must be a list with a corpus in it, got {'file'"),
        ("[]", r"`corpora` must be a list with a corpus in it, got \[\]"),
        ("[{", "`corpora` must be a list in YAML or JSON"),
    ],
)
def test_corpora_that_cannot_be_read_are_refused_before_anything_is(corpora, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe(["--corpora", corpora, "--output_dir", "out"])
