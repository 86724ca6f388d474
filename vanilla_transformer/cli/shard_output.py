"""Write the results of the lines of a file, shard by shard, so that a run that was killed continues."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.file_utils import write_text_atomically

if TYPE_CHECKING:
    from vanilla_transformer.decoding.corpus_shards import CorpusShards, Shard

Work = Callable[[Iterator["Shard"], int], Iterable[tuple["Shard", list[str]]]]


def write_shards(
    output: Path,
    lines: Iterable[str],
    total: int,
    origin: dict[str, Any],
    shard_lines: int,
    resume: bool,
    work: Work,
) -> None:
    """
    Write a file with the result of each line, and keep finished shards beside it until it is complete.

    Several processes that a launcher has started divide the shards among them.

    Args:
        total: The number of lines.
        origin, shard_lines: See [`CorpusShards`].
        resume: Continue a run that was killed.
        work: Yields shards with their results, given those without, and how many lines are finished.
    """
    from vanilla_transformer.decoding.corpus_shards import CorpusShards

    shards = CorpusShards.beside(output, origin, shard_lines)
    if is_distributed():
        _share_shards(shards, lines, resume, work)
    else:
        shards.open(resume)
        _work(shards, shards.unfinished(lines), work)
    if _is_main_process():
        write_text_atomically(output, shards.results(total))
        shards.delete()
    _end_process_group()


def is_distributed() -> bool:
    """Tell whether a launcher, such as `accelerate launch`, has started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _share_shards(shards: "CorpusShards", lines: Iterable[str], resume: bool, work: Work) -> None:
    """Work on the shards k, k + n, k + 2n, … in process k of n, and wait for the other processes."""
    from accelerate.utils import broadcast_object_list

    from vanilla_transformer.evaluation.decoding import process_state

    state = process_state()
    if state.is_main_process:
        shards.open(resume)
    (shards.shard_lines,) = broadcast_object_list([shards.shard_lines])
    own = (each for each in shards.unfinished(lines) if each.number % state.num_processes == state.process_index)
    _work(shards, own, work)
    state.wait_for_everyone()


def _work(shards: "CorpusShards", unfinished: Iterator["Shard"], work: Work) -> None:
    try:
        for shard, results in work(unfinished, shards.finished_lines):
            shards.write(shard, results)
    except KeyboardInterrupt as interruption:
        done = shards.finished_lines
        hint = f" after {done:,} sentences. Add --resume to continue." if done else "."
        raise KeyboardInterrupt(f"Interrupted{hint}") from interruption
    finally:
        if not is_distributed():
            shards.delete_if_empty()


def _is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _end_process_group() -> None:
    if is_distributed():
        from vanilla_transformer.evaluation.decoding import process_state

        process_state().destroy_process_group()


__all__ = ["is_distributed", "write_shards"]
