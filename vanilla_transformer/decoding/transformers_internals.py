"""
Private parts of transformers that this package uses; a test fails when the library changes one of
them.

Two more are overridden where the Hub files need them, in [`PaperGenerationMixin`]:
`_update_finished_beams` and `_check_early_stop_heuristic`.
"""

from typing import Any

from transformers import AutoModelForSeq2SeqLM, pipelines

from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import (
    TranslationPipeline as CarriedTranslationPipeline,
)

from .task_names import DIRECTED_TASK, TASKS


class _NoDefault(dict):
    """The default model of a task, which is refused when the library looks it up."""

    def __contains__(self, key: object) -> bool:
        raise UserError(
            "A task must have a model, got none. Give a folder or a name: pipeline(task, "
            "model=NAME)."
        )


def restore_tasks() -> None:
    """
    Make `pipeline("translation")`, `pipeline("translation_xx_to_yy")` and two more tasks work
    again, see [`TASKS`].

    transformers 5 lists them in `REMOVED_TASKS`, which is checked before the registry. The carried
    pipeline stands for the package's, which is imported when a task is first used.
    """
    registry = pipelines.PIPELINE_REGISTRY
    for task in TASKS:
        getattr(pipelines, "REMOVED_TASKS", {}).pop(task, None)
        # Registering twice would log a warning.
        registry.supported_tasks.pop(task, None)
        registry.register_pipeline(
            task, pipeline_class=CarriedTranslationPipeline, pt_model=AutoModelForSeq2SeqLM
        )
        registry.supported_tasks[task]["default"] = _NoDefault()
    # This mark makes `save_pretrained` write the pipeline's code into the checkpoint's
    # configuration once more, which then loads only with `trust_remote_code=True`, even with this
    # package.
    del CarriedTranslationPipeline._registered_impl
    check_task = type(registry).check_task

    def check_restored_task(task: str) -> tuple[str, dict, Any]:
        """Take `translation_en_to_de` as `translation`; the pipeline gets the whole name."""
        if DIRECTED_TASK.fullmatch(task):
            task = "translation"
        task_facts = check_task(registry, task)
        if task_facts[1]["impl"] is CarriedTranslationPipeline:
            from .translation_pipeline import TranslationPipeline

            task_facts[1]["impl"] = TranslationPipeline
        return task_facts

    registry.check_task = check_restored_task
