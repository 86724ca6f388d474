"""Every numeric flag and recipe key with numbers beyond reason: one line or a result, within
seconds.
"""

import shutil
from functools import partial
from itertools import product

import pytest

from tests.processes import run_limited
from vanilla_transformer.cli import find_command, main
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training import trainer
from vanilla_transformer.training.run_arguments import KEYS
from vanilla_transformer.user_input.schemas import Schema, parts_of

VALUES = ["0", "-1", "1000000000", "1" + "0" * 30, "nan", "x"]
SIZES = {"vocab_size": 262, "d_model": 16, "max_steps": 3, "max_tokens": 100}
SIZES |= {"encoder_layers": 1, "encoder_ffn_dim": 16, "encoder_attention_heads": 2}
SIZES |= {"decoder_layers": 1, "decoder_ffn_dim": 16, "decoder_attention_heads": 2}
TRAIN = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
TRAIN += [f"--{name}={value}" for name, value in SIZES.items()]
TEXTS = ["--source", "a.en", "--target", "a.de"]
COMMANDS = {
    "train": TRAIN,
    "translate": ["model", "A man.", "--max_new_tokens", "5"],
    "evaluate": ["model", *TEXTS, "--max_new_tokens", "3"],
    "score": ["model", *TEXTS],
    "explain": ["model", "A man.", "--output", "page.html"],
    "tune-reranking": ["model", *TEXTS, "--rerank_reverse", "model"],
    "back-translate": ["model", "--input", "a.en", "--output", "back.tsv", "--keep_warnings"],
    "train-tokenizer": ["a.en", "--output_dir", "out"],
    "write-corpus": ["--output_dir", "out"],
}
OUTPUTS = ("out", "back.tsv", "back.tsv.partial", "page.html")
SECONDS, MEBIBYTES = 10, 2048


class Stopped(BaseException):
    """Stand for the first step of training."""


def numeric_fields(command):
    fields = KEYS
    if command != "train":
        function = find_command(command)
        values = map(function.__globals__.get, function.__code__.co_names)
        classes = (value for value in values if isinstance(value, type))
        fields = next(filter(is_schema, classes)).model_fields
    return [name for name, field in fields.items() if {int, float} & {*parts_of(field)}]


def is_schema(value):
    return issubclass(value, Schema)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_answer_any_number(
    command, tiny_model, tiny_tokenizer, tmp_path, monkeypatch, capsys
):
    def stop(*_):
        raise Stopped

    def answer(flag):
        try:
            status = main([command, *COMMANDS[command], *filter(None, [flag])])
        except Stopped:
            status = 0
        lines = capsys.readouterr().err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert status in ((0, 2) if flag else (0,)), errors
        assert len(errors) == (status == 2), errors
        name = flag and flag.removeprefix("--").partition("=")[0]
        assert not errors or name in errors[0], f"no word about {name}: {errors[0]}"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "train_step", stop)
    save_model_folder(tiny_model, tiny_tokenizer, "model")
    for language in ("en", "de"):
        (tmp_path / f"a.{language}").write_text("a b c\nb c d e\nc d\n" * 4)
    wrong = []
    flags = {f"--{name}={value}" for name, value in product(numeric_fields(command), VALUES)}
    # Without one first, which must succeed, or every number would be refused unread.
    for flag in [None, *sorted(flags)]:
        for path in (tmp_path / name for name in OUTPUTS):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        try:
            run_limited(partial(answer, flag), SECONDS, MEBIBYTES)
        except AssertionError as error:
            wrong.append(f"{flag}: {error}")
    assert not wrong, "\n".join(wrong)
