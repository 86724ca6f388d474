"""`mixed_precision`: the precision of autocast, and the fastest one for a device."""

import logging

from accelerate import PartialState

from vanilla_transformer.device_utils import multiplies

logger = logging.getLogger(__name__)

AUTO = "auto"


def resolve_mixed_precision(name: str | None, process: PartialState) -> str | None:
    """Return the mixed precision for Accelerate on the device of a process, and log what `"auto"` is.

    `"auto"` is bf16 where the device has instructions for it, and no, which is float32, elsewhere. A warning is logged
    for bf16 on a processor that emulates it.
    """
    fast = multiplies("bfloat16", process.device)
    if name == AUTO:
        name = "bf16" if fast else "no"
        choice = "bf16: this device has" if fast else "no (float32): this device does not have"
        if process.is_main_process:
            logger.info("`mixed_precision` auto is %s instructions for bf16.", choice)
    elif name == "bf16" and process.device.type == "cpu" and not fast and process.is_main_process:
        logger.warning(
            "This processor has no instructions for bf16 and emulates it, many times more slowly than float32. Use "
            "`mixed_precision: auto`, which is float32 here."
        )
    return name


__all__ = ["AUTO", "resolve_mixed_precision"]
