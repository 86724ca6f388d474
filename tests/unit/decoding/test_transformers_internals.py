"""The private parts of transformers that the package uses still have the form it relies on."""

import inspect

import pytest
from transformers import pipelines
from transformers.generation import GenerationMixin

from vanilla_transformer import PaperGenerationMixin, TranslationPipeline
from vanilla_transformer.pipeline_vanilla_transformer import (
    TranslationPipeline as CarriedTranslationPipeline,
)


@pytest.mark.parametrize("hook", ["_update_finished_beams", "_check_early_stop_heuristic"])
def test_beam_search_calls_the_overridden_methods_with_keyword_arguments(hook):
    source = inspect.getsource(GenerationMixin._beam_search)
    call = source[source.index(f"self.{hook}(") :]
    call = call[: call.index(")\n")]
    arguments = [line.strip().split("=")[0] for line in call.splitlines()[1:] if line.strip()]
    needed = {"decoder_prompt_len", "early_stopping", "length_penalty", "cur_len"}
    needed |= (
        {"topk_log_probs"}
        if hook == "_update_finished_beams"
        else {"running_beam_scores", "max_length"}
    )
    assert needed <= set(arguments)
    assert set(arguments) == inspect.signature(getattr(GenerationMixin, hook)).parameters.keys() - {
        "self"
    }


def test_generation_mixin_overrides_two_private_methods_of_transformers():
    overridden = {
        name for name in vars(PaperGenerationMixin) if name[:1] == "_" != name[1:2]
    } & set(dir(GenerationMixin))
    assert overridden == {"_update_finished_beams", "_check_early_stop_heuristic"}


def test_pipeline_registry_checks_tasks_where_the_package_extends_it():
    assert "translation" not in getattr(pipelines, "REMOVED_TASKS", {})  # since 5.15
    assert "PIPELINE_REGISTRY.check_task(" in inspect.getsource(pipelines.check_task)
    assert "_registered_impl" in inspect.getsource(
        type(pipelines.PIPELINE_REGISTRY).register_pipeline
    )
    assert not hasattr(CarriedTranslationPipeline, "_registered_impl")
    assert pipelines.check_task("translation_en_to_de")[1]["impl"] is TranslationPipeline
