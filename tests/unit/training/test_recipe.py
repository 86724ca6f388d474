"""The recipe of a run: YAML and flags, their rules and mistakes, and the packaged recipes."""

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import yaml
from transformers import PreTrainedConfig

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.data.data_arguments import corpus_specs
from vanilla_transformer.data.readers import CorpusSpec
from vanilla_transformer.errors import UserErrors
from vanilla_transformer.training.recipe import flatten_sections, parse_recipe, read_recipe
from vanilla_transformer.training.recipe_checks import check_same_run
from vanilla_transformer.training.run_arguments import (
    KEYS,
    SECTIONS,
    ArchitectureArguments,
    LongArguments,
    flatten,
)
from vanilla_transformer.training.schedule import Pace, derive_schedule
from vanilla_transformer.user_input.reasons import Reasons
from vanilla_transformer.user_input.schemas import parts_of
from vanilla_transformer.user_input.yaml_values import load_yaml

FILES = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
RECIPE_FOLDER = Path(__file__).parents[3] / "recipes"
# Keys without a value, which follow from others or from the device.
DERIVED_KEYS = {"warmup_steps", "learning_rate_scale", "tokens_per_step"}
RECIPES = sorted(RECIPE_FOLDER.glob("*.yaml"))


@pytest.fixture
def recipe_file(tmp_path):
    def write(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_parse_recipe_defaults_to_paper():
    recipe = parse_recipe(FILES)
    derived = derive_schedule(recipe, Pace(steps_per_epoch=5300))  # 4.5 million pairs
    assert (derived.warmup_steps, derived.max_steps) == (4000, 100_000)
    assert derived.learning_rate_scale == 1.0
    assert recipe.optimization.label_smoothing == 0.1
    assert (recipe.data.vocab_size, recipe.data.max_tokens) == (37000, 25000)
    assert recipe.output.average_checkpoints == 5


SCALARS = (int, float, str, bool)
# Types of the configuration whose arguments have a narrower one.
NARROWER = {float | int: {float}, str | list[str]: {str}}


@pytest.mark.parametrize(
    "arguments, config_class",
    [
        (ArchitectureArguments, VanillaTransformerConfig),
        (LongArguments, VanillaTransformerLongConfig),
    ],
)
def test_model_arguments_agree_with_the_configuration(arguments, config_class):
    of_config = {item.name: item for item in fields(config_class)}
    for name, field in arguments.model_fields.items():
        kind = of_config[name].type
        parts = parts_of(field)
        kinds = {part for part in parts if part in SCALARS or get_origin(part) is Literal}
        assert kinds == NARROWER.get(kind, {*get_args(kind), kind} & kinds), name
        assert name == "layer_types" or field.default == of_config[name].default
        assert field.description in " ".join(config_class.__doc__.split()), name
    config_class(**vars(arguments()))


def test_model_arguments_are_all_fields_that_training_uses_and_data_do_not_determine():
    derived = {"vocab_size", "decoder_vocab_size", "max_source_length", "init_std"}
    derived |= {"share_encoder_decoder_embeddings", "is_encoder_decoder"}
    derived |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}
    derived |= {"use_cache", "lm_head_bias", "attention_bias", "scale_embedding", "source_eos"}
    common = {item.name for item in fields(VanillaTransformerConfig)}
    long = {item.name for item in fields(VanillaTransformerLongConfig)}
    inherited = {item.name for item in fields(PreTrainedConfig)}
    inherited -= {"chunk_size_feed_forward", "tie_word_embeddings"}
    assert {*ArchitectureArguments.model_fields} == common - derived - inherited
    assert {*LongArguments.model_fields} == long - common - {"hash_seed"}


def test_each_key_says_whether_a_resumed_run_may_change_it():
    now = flatten(parse_recipe(FILES))
    for name, field in KEYS.items():
        before = now | {name: "another"}
        may_change = field.json_schema_extra["may_change"]
        if may_change is True:
            check_same_run(before, now)
        elif name not in DERIVED_KEYS:
            assert may_change is False
            with pytest.raises(ValueError, match=f"different values of {name} was 'another'"):
                check_same_run(before, now)


def test_parse_recipe_flags_override_recipe(recipe_file):
    path = recipe_file("d_model: 64\ndropout: 0.3\nnormalize_before: true\n")
    model = parse_recipe([path, "--dropout", "0.2", *FILES]).model
    assert (model.d_model, model.dropout, model.encoder_layers) == (64, 0.2, 6)
    assert model.normalize_before is True


def test_read_recipe_names_missing_file():
    with pytest.raises(FileNotFoundError, match="no recipe nowhere.yaml"):
        parse_recipe(["nowhere.yaml", *FILES])


TUNING = "--init_from x --lora_rank 2"
EXCLUDED = "^`lora_rank` must be given without"
TOKENS = "the embeddings of new tokens must be trained"
# Flags beside the text and the folder, and words of the refusal.
FLAGS = {
    "--warmup_step 3": "no flag 'warmup_step'. Did you mean 'warmup_steps'?",
    "--max_tokens 0": "`max_tokens` must be an integer from 1 to 10,000,000, got 0",
    f"--max_steps 1{'0' * 40}": "`max_steps` must be an integer from 1 to 1,000,000,000,000, got 1000",
    "--warmup_steps -1": "`warmup_steps` must be an integer from 1 to .*, got -1",
    "--warmup_steps 0": "`warmup_steps` must be an integer from 1 to .*, got 0",
    "--num_train_epochs 0": "`num_train_epochs` must be a number above 0, got 0",
    "--max_grad_norm 0": "`max_grad_norm` must be a number above 0, got 0",
    "--label_smoothing 1": r"`label_smoothing` must be a number in \[0, 1\), got 1",
    "--dataset x": "either `dataset` or text files",
    "--validation_source v.en": "given together",
    "--bpe_dropout 1": r"`bpe_dropout` must be a number in \[0, 1\), got 1",
    "--bpe_dropout nan": "`bpe_dropout` must be a number in .*, got nan",
    "--bpe_dropout 0.1 --tokenizer_model unigram": "`bpe_dropout` must be 0 .*got 0.1 with unigram",
    "--tokenizer_model regex": "`tokenizer_pattern` must be given with .* got None with regex",
    "--tokenizer_pattern .": "`tokenizer_pattern` must .* with no other, got '.' with bpe",
    "--tokenizer ''": "^`tokenizer` must not be empty, got '', .*, or leave it out",
    "--init_from ''": "^`init_from` must not be empty, got ''",
    "--user_module ''": "`user_module` must be a file of Python",
    "--tokenizer_model spm": "^`tokenizer_model` must be one of 'bpe', .*, got 'spm'",
    "--bpe_dropout 0.1 --tokenizer_model sentencepiece": "`bpe_dropout` must be 0 .*got 0.1 with sentencepiece",
    "--test_target t.de": "`test_source` and `test_target` must be given together",
    "--corpora '[{file: a.tsv}]'": "Give either .* got `corpora` and `train_source`",
    "--augment '{inline_term: 0.1}'": "no key of `augment` 'inline_term'. Did you mean 'inline_terms'?",
    "--augment '{inline_terms: 2}'": r"`inline_terms` of `augment` must be a number in \[0, 1\], got 2",
    "--augment '{typo: 0.1}'": "no key of `augment` 'typo'. Did you mean 'typos'?",
    "--augment '{placeholders: true}'": "`placeholders` of `augment` must be a number .* got True",
    "--augment '{phrases: 0.1}'": "^`phrases` of `augment` must be given with `train_alignments`, .* Add",
    "--augment 0.1": r"`augment` must be a mapping, such as \{typos: 0.05\}, got 0.1",
    "--augment '{a: [}'": "`augment` must be a list or a mapping in YAML or JSON",
    "--augment null": "`augment` must be .*, got 'null', which is empty. Leave it out",
    "--source_tags '#BT'": "`source_tags` must be a list .*, got '#BT', .* or quote text that begins with #",
    "--max_length 0": "`max_length` must be an integer of 1 or more, got 0",
    "--max_length_ratio 0.5": "`max_length_ratio` must be a number of 1 or more, got 0.5",
    "--fsdp --mixed_precision fp16": "`fsdp` needs `mixed_precision` bf16 or no, got fp16",
    "--fsdp --gradient_compression bf16": "^`gradient_compression` must be left out with `fsdp`, .*, got bf16. Leave one",
    "--gradient_compression fp8": "`gradient_compression` must be one of 'bf16', got 'fp8'",
    "--compile=always": "`compile` must be true, false or auto, got 'always'",
    "--fsdp=auto": "`fsdp` must be true or false, got 'auto'",
    "--tokens_per_step 900 --max-tokens 70": "Give either `tokens_per_step`, .* got both as flags",
    "--tokens_per_step 0": "`tokens_per_step` must be an integer from 1 to .*, got 0",
    f"{TUNING} --fsdp": f"{EXCLUDED} fsdp, got both: adapters are merged into whole weights",
    f"{TUNING} --freeze encoder": f"{EXCLUDED} freeze, got both: only adapters are trained",
    f"{TUNING} --source_tags '<BT>'": f"{EXCLUDED} `source_tags`, got both: {TOKENS}",
    f"{TUNING} --augment '{{inline_terms: 0.1}}'": f"{EXCLUDED} `inline_terms` of `augment`, got both: {TOKENS}",
    f"{TUNING} --init_vocabulary extend": f"{EXCLUDED} `init_vocabulary: extend`, got both: {TOKENS}",
    "--init_from x --freeze embeddings --source_tags '<BT>'": "^`source_tags` adds tokens, whose embeddings must",
    "--init_from x --freeze embeddings --init_vocabulary extend": "^`init_vocabulary: extend` adds tokens, whose",
}
# The same for the text of a recipe.
TEXTS = {
    "drop_out: 0.1": "no recipe key 'drop_out'. Did you mean 'dropout'?",
    "- 1": "got list",
    "a: [": "must be YAML",
    "1: 2": "must be a name, got 1",
    "corpora: &all [*all]": "must be YAML: aliases are not supported",
    "seed: 1\nseed: 2": "the key 'seed' is there twice",
    "source_language: [en]": r"`source_language` must be .*, got \[",
    "normalization: {nfc: true}": "`normalization` must be .*, got {",
    "max_steps: [1]": r"`max_steps` must be .*, got \[",
    "tokens_per_step: 900\nmax_tokens: 70": "Give either `tokens_per_step`, .* got both in the recipe",
    "data: {max_tokens: 4}\ntokens_per_step: 8": "Give either `tokens_per_step`",
    "data: {dropout: 0.1}": "`dropout` must be in the section `model`, got it in `data`. Move it.",
    "dropout: 0.1\nmodel: {dropout: 0.2}": "`dropout` must be in a recipe once, got it twice",
    "model: {d_model: 4, d-model: 4}": "`d_model` must be in a recipe once, got it twice",
    "model: [d_model]": "The section `model` must hold `key: value` lines, got list",
    "model: 64": "The section `model` must hold `key: value` lines, got int",
    "model: {1: 2}": "Every key of the section `model` must be a name, got 1",
    "model: {drop_out: 0.1}": "There is no recipe key 'drop_out'. Did you mean 'dropout'",
    "model: {model: {dropout: 0.1}}": "There is no recipe key 'model'",
    "distillation: {teacher: a}": "There is no recipe key 'distillation'",
}
HELD_OUT = "--validation '[{dataset: opus:TED2020, split: validation}]'"
WITHOUT_SPLITS = "`dataset` must have splits, but"
EN_DE = "--output_dir out --source_language en --target_language de"
# The same for all flags.
WITHOUT_FILES = {
    "--train_source a.en --output_dir out": "`train_target` must be given",
    "--train_source a.en --train_target a.de": "`output_dir` must be given",
    "--train_source '' --train_target a.de --output_dir out": "^`train_source` must not be empty, got '', perhaps",
    "--dataset x --target_language de --output_dir out": "`source_language` must be given with a `dataset`",
    "--output_dir out --corpora '[{file: a.tsv, wieght: 2}]'": "no key of a corpus 'wieght'. Did you mean 'weight'?",
    "--output_dir out --corpora '[{file: a.tsv, no_weight: 2}]'": "There is no key of a corpus 'no_weight'",
    "--output_dir out --corpora '[{file: a.csv}]'": "must end with .xlf",
    "--output_dir out --corpora [a.tsv]": "must be a mapping, such as .* got 'a.tsv'",
    "--output_dir out --corpora '{file: a.tsv}'": "`corpora` must be a list with a corpus in it, got {'file'",
    "--output_dir out --corpora []": r"`corpora` must be a list with a corpus in it, got \[\]",
    "--output_dir out --corpora [{": "`corpora` must be a list or a mapping in YAML or JSON",
    f"{EN_DE} --corpora '[{{dataset: opus:A/v1, split: test}}]'": "must be left out for opus:A/v1, .* got 'test'",
    f"{EN_DE} --dataset opus:TED2020": f"{WITHOUT_SPLITS} opus:TED2020 has none. Put it into `corp",
    f"{EN_DE} --dataset mtdata:Statmt-news_commentary-16-deu-eng": f"{WITHOUT_SPLITS} mtdata:Statmt",
    f"{EN_DE} --corpora '[{{file: a.tsv}}]' {HELD_OUT}": "`split` must be left out for opus:TED2020, .* got 'validation'",
}


REFUSED = [(FILES, flags, message) for flags, message in FLAGS.items()]
REFUSED += [(FILES, text, message) for text, message in TEXTS.items()]
REFUSED += [([], flags, message) for flags, message in WITHOUT_FILES.items()]


@pytest.mark.parametrize(("words", "text", "message"), REFUSED)
def test_parse_recipe_refuses(recipe_file, words, text, message):
    flags = shlex.split(text) if text.startswith("--") else [recipe_file(text)]
    with pytest.raises(ValueError, match=message) as refused:
        parse_recipe([*flags, *words])
    reason = str(refused.value)
    assert "\n" not in reason or "YAML" in reason  # whose errors show the place


# With a line of mistakes for each line that begins so: "# line: message".
MISTAKES = [
    """\
data:
  vocab_size: many  # 2: `vocab_size` must be an integer from 1 to 10,000,000, got 'many'.
  augment:
    typoes: 0.1  # 4: There is no key of `augment` 'typoes'. Did you mean 'typos'?
    emoji: 7  # 5: `emoji` of `augment` must be a number in [0, 1], got 7.
model:
  enocder_layers: 2  # 7: There is no recipe key 'enocder_layers'. Did you mean 'encoder_layers'?
  warmup_steps: 5  # 8: `warmup_steps` must be in the section `optimization`, got it in `model`. \
Move it.
average_checkpoints: 4
keep_last: 2  # 10: `keep_last` must be at least `average_checkpoints`=4, got 2: checkpoints are \
averaged at the end.
""",
    """\
corpora:
- file: a.csv  # 2: Corpus 1 of `corpora`: The name of a `file` must end with .xlf
- file: b.tsv
  weight: 0  # 4: Corpus 2 of `corpora`: `weight` of a corpus must be a number above 0, got 0.
  wieght: 2  # 5: There is no key of a corpus 'wieght'. Did you mean 'weight'?
  min_score: high  # 6: `min_score` must be a number, got 'high'.
""",
    # The scheduler is known, but not whether a learning rate is given with it.
    """\
lr_scheduler: linear
learning_rate: fast  # 2: `learning_rate` must be a number of 0 or more, got 'fast'.
label_smoothing: 2  # 3: `label_smoothing` must be a number in [0, 1), got 2.
""",
]


@pytest.mark.parametrize("text", MISTAKES)
def test_recipe_is_refused_once_with_all_mistakes(recipe_file, text):
    text = text.replace("\\\n", "")
    file = recipe_file(text)
    words = ["--output_dir", "out"] if "corpora" in text else FILES
    with pytest.raises(UserErrors) as refused:
        parse_recipe([file, *words])
    messages = str(refused.value).splitlines()
    expected = re.findall(r"# (\d+): (.*)", text)
    assert len(messages) == len(expected)
    for message, (line, reason) in zip(messages, expected, strict=True):
        assert message.startswith(f"{file}, line {line}: {reason}")


def test_mistakes_of_flags_have_no_line(recipe_file):
    file = recipe_file("vocab_size: 5\nmax_steps: -1\n")
    with pytest.raises(UserErrors) as refused:
        parse_recipe([file, *FILES, "--vocab_size", "many"])
    flag, key = str(refused.value).splitlines()
    assert flag.startswith("`vocab_size` must be")
    assert key.startswith(f"{file}, line 2: `max_steps` must be")


# Keys that change nothing, with their defaults, since a default is given, too.
WITHOUT_EFFECT = {
    "tokenizer_model: bpe": ("tokenizer: t", "`tokenizer` is t, and none is trained on the text"),
    "normalization: nfc": ("tokenizer: t", "`tokenizer` is t"),
    "vocab_size: 37000": ("tokenizer: t", "`tokenizer` is t"),
    "normalization: nfkc": ("init_from: m", "`init_vocabulary: keep` keeps the model's tokenizer"),
    "tokenizer_model: unigram": (
        "{init_from: m, init_vocabulary: extend}",
        "`init_vocabulary: extend` keeps",
    ),
    "normalization: none": (
        "tokenizer_model: sentencepiece",
        "`tokenizer_model` is sentencepiece, which has its own",
    ),
    "tokenizer_pattern: a": ("tokenizer: t", "`tokenizer` is t"),
    "max_position_embeddings: 1024": ("", "positions are sinusoidal, without a limit"),
    "sinusoid_layout: halves": ("position_embedding_type: learned", "positions are learned"),
    "learning_rate_scale: 1.0": (
        "{lr_scheduler: inverse_sqrt, learning_rate: 0.1}",
        "`lr_scheduler` is inverse_sqrt",
    ),
    "warmup_steps: 10": (
        "{lr_scheduler: constant, learning_rate: 0.1}",
        "`lr_scheduler` is constant",
    ),
    "alignment_weight: 0.3": ("", "there are no `train_alignments`"),
    "num_hashes: 4": ("", "`layer_types` is full_attention, which does not hash"),
    "num_buckets: 32": ("layer_types: linear_attention", "`layer_types` is linear_attention"),
    "lsh_attn_chunk_length: 64": ("", "`layer_types` is full_attention"),
}


@pytest.mark.parametrize("line", WITHOUT_EFFECT)
def test_check_recipe_refuses_keys_without_effect(line, recipe_file):
    others, reason = WITHOUT_EFFECT[line]
    others = load_yaml(others) or {}
    flags = [f"--{key}={other}" for key, other in others.items()]
    name, value = line.split(": ")
    message = f"^`{name}` must be left out, since it would change nothing: {reason}"
    with pytest.raises(ValueError, match=message):
        parse_recipe([*FILES, *flags, f"--{name}", value])
    file = recipe_file(yaml.safe_dump(others | {name: load_yaml(value)}))
    with pytest.raises(ValueError, match=message):
        parse_recipe([file, *FILES])
    parse_recipe([*FILES, *flags])


@pytest.mark.parametrize("model", ["characters", "words", "regex"])
def test_check_recipe_refuses_normalization_of_sequences(model):
    message = f"would change nothing: `tokenizer_model` is {model}, which has its own or none"
    with pytest.raises(ValueError, match=message):
        parse_recipe([*FILES, "--tokenizer_model", model, "--normalization", "none"])


def vocabulary_of(words):
    data = parse_recipe(words).data
    return data.vocab_size, data.tokenizer_model, data.normalization


@pytest.mark.parametrize("flags", [["--tokenizer", "t"], ["--init_from", "m"]])
def test_flag_of_a_vocabulary_replaces_keys_of_another(flags, recipe_file):
    path = recipe_file("{vocab_size: 9000, tokenizer_model: unigram, normalization: nfkc}")
    assert vocabulary_of([path, *FILES, *flags]) == (37000, "bpe", "nfc")
    replacing = ["--init_from", "m", "--init_vocabulary", "replace"]
    assert vocabulary_of([path, *FILES, *replacing]) == (9000, "unigram", "nfkc")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_shipped_recipes_parse_and_name_data_inside_the_repository_and_its_origin(path):
    values = read_recipe(path)
    named = {"dataset", "train_source", "corpora"} & values.keys()
    others = ["--output_dir", "out"] if named else FILES
    recipe = parse_recipe([str(path), *others])
    VanillaTransformerConfig(**vars(recipe.model))
    for name, value in values.items():
        if name.endswith(("_source", "_target")):
            assert value.startswith("data/")
    origin = "# Data: " if path.name != "demo.yaml" else "# The recipe of `make demo`"
    lines = path.read_text().splitlines()
    assert any(line.startswith(origin) for line in lines)


MIX = """
source_language: en
target_language: de
corpora:
  - {source: a.en.xz, target: "a: b.de"}
  - {file: b.tsv.gz, weight: 0.5, split: null}
  - {dataset: "wmt14:fr-en", split: test, source_language: fr}
"""


def test_corpus_specs_inherit_languages_of_recipe(recipe_file):
    words = [recipe_file(MIX), "--output_dir", "out"]
    common = {"source_language": "en", "target_language": "de"}
    french = common | {"source_language": "fr"}
    assert corpus_specs(parse_recipe(words).data) == [
        CorpusSpec(source="a.en.xz", target="a: b.de", **common),
        CorpusSpec(file="b.tsv.gz", weight=0.5, **common),
        CorpusSpec(dataset="wmt14:fr-en", split="test", **french),
    ]
    recipe = parse_recipe([*words, "--corpora", '[{"file": "c.jsonl"}]'])
    assert recipe.data.corpora == [{"file": "c.jsonl"}]


def test_corpus_specs_of_files_and_dataset():
    files = corpus_specs(parse_recipe(FILES).data)
    assert files == [CorpusSpec(source="a.en", target="a.de")]
    recipe = parse_recipe(["--dataset", "x", *EN_DE.split()])
    (dataset,) = corpus_specs(recipe.data)
    assert dataset == CorpusSpec(dataset="x", source_language="en", target_language="de")


def test_downloaded_corpora_may_have_other_held_out_text():
    words = ["--corpora", "[{dataset: 'opus:TED2020'}]"]
    words += ["--validation", "[{file: held_out.tsv}]"]
    assert parse_recipe([*EN_DE.split(), *words])


def test_check_same_run_takes_the_defaults_for_names_that_are_newer_than_the_run():
    now = flatten(parse_recipe(FILES))
    newer = {"sampling_temperature", "stages"}
    before = {name: now[name] for name in now.keys() - newer}
    check_same_run(before, now)
    message = "different values of sampling_temperature was 1.0 and is 5.0"
    with pytest.raises(ValueError, match=message):
        check_same_run(before, now | {"sampling_temperature": 5.0})


def test_parse_recipe_reads_words_as_yaml_1_2_does(recipe_file):
    text = "target_language: no\nmixed_precision: no\ncompile: off\nfsdp: Yes\n"
    text += "ema_decay: 1e-1\ndropout: .5\n"
    recipe = parse_recipe([recipe_file(text), *FILES])
    optimization = recipe.optimization
    assert (recipe.data.target_language, optimization.mixed_precision) == ("no", "no")
    assert optimization.compile is False and optimization.fsdp is True
    text = "corpora: [{file: a.tsv, source_language: no, reverse: TRUE, drop: [empty]}]\n"
    (corpus,) = parse_recipe([recipe_file(text), "--output_dir", "out"]).data.corpora
    expected = {"file": "a.tsv", "source_language": "no", "drop": ["empty"]}
    assert corpus == expected | {"reverse": True}
    wrong = recipe_file(text.replace("TRUE", "no"))
    with pytest.raises(ValueError, match="`reverse` of a corpus must be true or false"):
        parse_recipe([wrong, "--output_dir", "out"])


def test_parse_recipe_reads_tags_that_yaml_has_in_quotation_marks(recipe_file):
    file = recipe_file('source_tags: ["#BT"]\n')
    assert parse_recipe([file, *FILES]).data.source_tags == ["#BT"]
    assert parse_recipe([*FILES, "--source_tags", "'#BT'"]).data.source_tags == ["#BT"]


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("tokens_per_step: 900", [], (900, 900)),
        ("tokens_per_step: 900", ["--max-tokens=70"], (None, 70)),
        ("max_tokens: 70", ["--tokens_per_step", "900"], (900, 900)),
        ("max_tokens: 70\ntokens_per_step: null", [], (None, 70)),
    ],
)
def test_flags_of_a_recipe_choose_the_batch_size(recipe_file, text, flags, expected):
    data = parse_recipe([recipe_file(text), *FILES, *flags]).data
    assert (data.tokens_per_step, data.max_tokens) == expected


def test_check_same_run_allows_smaller_batches_in_more_processes():
    def sizes(max_tokens, tokens_per_step):
        changes = {"max_tokens": max_tokens, "tokens_per_step": tokens_per_step}
        return flatten(parse_recipe(FILES)) | changes

    check_same_run(sizes(900, 900), sizes(450, 900))
    check_same_run(sizes(450, None), sizes(450, 900))
    for now in (sizes(450, None), sizes(450, 900)):
        with pytest.raises(ValueError, match="max_tokens was 900 and is 450"):
            check_same_run(sizes(900, None), now)
    with pytest.raises(ValueError, match="max_tokens was 900 and is 800"):
        check_same_run(sizes(900, 900), sizes(800, 800))


def test_parse_recipe_reads_sections_and_flat_keys_alike(recipe_file):
    flat = "train_source: a\ntrain_target: b\nd_model: 64\nmem_len: 9\nseed: 3\n"
    flat += "output_dir: c\nfreeze: null\n"
    sections = "data: {train_source: a, train-target: b}\nmodel: {d_model: 64, mem_len: 9}\n"
    sections += "seed: 3\noutput:\n  output_dir: c\nfine_tuning:\n"
    recipe = parse_recipe([recipe_file(sections)])
    assert recipe == parse_recipe([recipe_file(flat)])
    assert (recipe.model.d_model, recipe.long.mem_len, recipe.optimization.seed) == (64, 9, 3)
    assert parse_recipe([recipe_file(sections), "--d_model", "32"]).model.d_model == 32


@pytest.mark.parametrize("section, parts", SECTIONS.items())
def test_each_key_may_stand_in_its_section_only(section, parts):
    section_of = {}
    for name, parts_of_section in SECTIONS.items():
        for part in parts_of_section:
            section_of |= dict.fromkeys(part.model_fields, name)
    keys = {key: 1 for part in parts for key in part.model_fields}
    with Reasons() as reasons:
        assert flatten_sections({section: keys}, section_of, reasons) == keys
    for name in section_of.keys() - keys.keys():
        message = f"`{name}` must be in the section `{section_of[name]}`, "
        message += f"got it in `{section}`. Move it."
        with pytest.raises(ValueError, match=message), Reasons() as reasons:
            flatten_sections({section: {name: 1}}, section_of, reasons)


CHOICES = [([], None), (["auto"], None), (["true"], True), (["false"], False)]


@pytest.mark.parametrize(("words", "expected"), CHOICES)
@pytest.mark.parametrize("name", ["compile", "packing"])
def test_choices_of_the_device_are_auto_by_default(recipe_file, name, words, expected):
    flags = [f"--{name}", *words] if words else []
    assert getattr(parse_recipe([*FILES, *flags]).optimization, name) is expected
    path = recipe_file(f"{name}: {words[0]}\n" if words else "{}\n")
    assert getattr(parse_recipe([path, *FILES]).optimization, name) is expected


FIRST_RECIPES = ["small", "base", "student", "pocket", "finetune_opus_mt", "multilingual"]


@pytest.mark.parametrize("name", FIRST_RECIPES)
def test_recipes_to_start_from_say_what_to_expect(name):
    path = RECIPE_FOLDER / f"{name}.yaml"
    text = path.read_text()
    header = text[: text.index("\n", text.rindex("\n#") + 1)]
    assert all(words in header for words in ("What to expect", "pairs", "here"))
    lengths = {"max_steps", "warmup_steps", "max_minutes", "train_source"}
    assert not lengths & read_recipe(path).keys() or name in ("student", "multilingual")
