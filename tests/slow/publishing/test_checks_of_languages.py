"""Checks before publishing of a model with several languages."""

import copy

from tests.publishable import add_card
from tests.tiny import tiny_model
from vanilla_transformer.publishing import checks
from vanilla_transformer.text.languages import Direction, add_language_tags
from vanilla_transformer.utils.file_utils import save_model_folder


def test_check_folder_passes_a_model_with_several_languages(tiny_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("de", "en")])
    folder = save_model_folder(tiny_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "model")
    assert not checks.failed_checks(checks.check_folder(add_card(folder)))
