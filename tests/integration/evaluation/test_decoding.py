"""Distributed translation with one process."""

import torch

from tests.translation import SENTENCES, translate_alone
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.evaluation.scores import translate_on_all_processes


def test_translate_on_all_processes_alone_uses_no_process_group(
    tiny_model, tiny_tokenizer, monkeypatch
):
    def refuse(*args, **kwargs):
        raise AssertionError("There is no other process.")

    for name in ("init_process_group", "all_gather_object", "barrier"):
        monkeypatch.setattr(torch.distributed, name, refuse)
    expected = translate_alone(tiny_model, tiny_tokenizer, SENTENCES)
    assert (
        translate_on_all_processes(TranslationPipeline(tiny_model, tiny_tokenizer), SENTENCES)
        == expected
    )
    assert not torch.distributed.is_initialized()
