"""A wrong value of an option has one message, whether it comes from Python, the command line or a JSON body."""

import pytest
from pydantic import ValidationError

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.file_utils import save_model_folder
from vanilla_transformer.inference.loading import load_pipeline
from vanilla_transformer.inference.options import OptionError, declared_options, request_model

WRONG = [
    ({"num_beams": 0}, "`num_beams` must be an integer of 1 or more, got 0."),
    ({"mbr": "comet"}, "`mbr` must be one of 'chrf', 'bleu', got 'comet'."),
    ({"mbr": "chrf", "mbr_samples": 1}, "`mbr_samples` must be an integer of 2 or more, got 1."),
    ({"alternatives": 0}, "`alternatives` must be an integer of 1 or more, got 0."),
    ({"coverage_penalty": -1.0}, "`coverage_penalty` must be a number of 0 or more, got -1.0."),
    ({"diversity_penalty": -1.0}, "`diversity_penalty` must be a number of 0 or more, got -1.0."),
    ({"target_prefix": "Ein", "prefix_bias": 2.0}, "`prefix_bias` must be a number between 0 and 1, got 2.0."),
    ({"rerank_reverse_weight": -1.0}, "`rerank_reverse_weight` must be a number of 0 or more, got -1.0."),
    ({"rerank_length_weight": float("inf")}, "`rerank_length_weight` must be a finite number, got inf."),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path_factory.mktemp("models") / "model"))


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(list(options)[-1]) for options, _ in WRONG])
def test_wrong_options_have_the_same_message_everywhere(folder, capsys, options, message):
    with pytest.raises(OptionError) as error:
        load_pipeline(folder)("A man", **options)
    assert str(error.value) == message
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    assert main(["translate", folder, "A man", *flags, "--quiet"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {message}"
    if all(declared_options()[name].json for name in options):
        with pytest.raises(ValidationError) as refused:
            request_model()(**options)
        assert [str(each["ctx"]["error"]) for each in refused.value.errors()] == [message]
