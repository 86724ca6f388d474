"""The private parts of transformers that the package uses still have the form it relies on."""

import copy
import inspect
import re

import pytest
from transformers import GenerationConfig, pipelines
from transformers.generation import GenerationMixin

from vanilla_transformer import PaperGenerationMixin, TranslationPipeline
from vanilla_transformer.generation_vanilla_transformer import WuLengthPenalty


@pytest.mark.parametrize("name", ["_update_finished_beams", "_check_early_stop_heuristic"])
def test_beam_search_divides_by_a_power_of_the_length(name):
    assert re.search(r"\*\* ?length_penalty\)", inspect.getsource(getattr(GenerationMixin, name)))


def test_generation_mixin_overrides_no_private_method_of_transformers():
    private = {name for name in vars(PaperGenerationMixin) if name[:1] == "_" != name[1:2]}
    assert not private & set(dir(GenerationMixin))


@pytest.mark.parametrize("alpha", [0.6, 1.0, 0.0, -0.5])
def test_wu_length_penalty_is_equation_14_as_an_exponent(alpha):
    exponent = copy.deepcopy(GenerationConfig(length_penalty=WuLengthPenalty(alpha))).length_penalty
    assert exponent == alpha
    assert 7**exponent == 2**alpha


def test_pipeline_registry_checks_tasks_where_the_package_extends_it():
    assert "summarization" in pipelines.REMOVED_TASKS and "translation" not in pipelines.REMOVED_TASKS
    assert "PIPELINE_REGISTRY.check_task(" in inspect.getsource(pipelines.check_task)
    assert "_registered_impl" in inspect.getsource(type(pipelines.PIPELINE_REGISTRY).register_pipeline)
    assert not hasattr(TranslationPipeline, "_registered_impl")
