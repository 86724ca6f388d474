"""
Private parts of transformers that this package uses; a test fails when the library changes one of them.

Two more are overridden where the Hub files need them, in [`PaperGenerationMixin`]: `_update_finished_beams` and
`_check_early_stop_heuristic`.
"""

import re
from typing import Any

from transformers import AutoModelForSeq2SeqLM, pipelines

from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedTranslationPipeline


def restore_translation_task() -> None:
    """
    Make `pipeline("translation")` and `pipeline("translation_xx_to_yy")` work again.

    transformers 5 lists the task in `REMOVED_TASKS`, which is checked before the registry. The carried pipeline stands
    for the package's, which is imported when the task is first used.
    """
    getattr(pipelines, "REMOVED_TASKS", {}).pop("translation", None)
    registry = pipelines.PIPELINE_REGISTRY
    registry.supported_tasks.pop("translation", None)  # registering twice would log a warning
    registry.register_pipeline(
        "translation", pipeline_class=CarriedTranslationPipeline, pt_model=AutoModelForSeq2SeqLM
    )
    # This mark makes `save_pretrained` write the pipeline's code into the checkpoint's configuration once more, which
    # then loads only with `trust_remote_code=True`, even with this package.
    del CarriedTranslationPipeline._registered_impl
    check_task = type(registry).check_task

    def check_translation_task(task: str) -> tuple[str, dict, Any]:
        """Take `translation_en_to_de` as `translation`: the checkpoint knows its languages."""
        found = check_task(registry, "translation" if re.fullmatch("translation_.+_to_.+", task) else task)
        if found[1]["impl"] is CarriedTranslationPipeline:
            from .translation_pipeline import TranslationPipeline

            found[1]["impl"] = TranslationPipeline
        return found

    registry.check_task = check_translation_task
