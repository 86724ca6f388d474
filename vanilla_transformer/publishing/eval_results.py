"""Scores for the leaderboards of benchmarks, which the Hub reads from a folder of YAML files.

The card holds every score, as `model-index`. A leaderboard takes one score of each of its tasks.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from vanilla_transformer.errors import UserError

from .run_records import EVALUATIONS, read_records

EVAL_RESULTS = ".eval_results"
_METRIC = "bleu"  # of a text for which the facts name none


def find_eval_results(run: str | Path, facts: Mapping[str, Any]) -> list[EvalResultEntry]:
    """Return the recorded scores of the texts that the facts call tasks of a benchmark.

    Args:
        run: The folder with the records of `evaluate --name`.

    Raises:
        UserError: A text with a `task_id` has no record, or none with its metric.
    """
    scores = {record["name"]: record["scores"] for record in read_records(Path(run), EVALUATIONS)}
    entries: list[EvalResultEntry] = []
    for text, benchmark in facts.get("evaluation_datasets", {}).items():
        if "task_id" not in benchmark:
            continue
        metric = benchmark.get("metric", _METRIC)
        if metric not in scores.get(text, {}):
            known = ", ".join(scores.get(text, {})) or "no scores"
            raise UserError(
                f"A text with a `task_id` must have a recorded {metric}, but {text!r} has {known}. "
                f'Run `vanilla-transformer evaluate --name "{text}"` first.'
            )
        scored = scores[text][metric]
        entry = EvalResultEntry(
            dataset_id=benchmark["type"],
            task_id=benchmark["task_id"],
            value=round(scored["score"], 2),
            notes=scored["signature"],
        )
        entries.append(entry)
    return entries


def write_eval_results(folder: Path, entries: Sequence[EvalResultEntry]) -> None:
    """Write each score to a file, whose name tells the benchmark and its task."""
    for entry in entries:
        name = f"{entry.dataset_id.replace('/', '_')}_{entry.task_id}.yaml"
        path = folder / EVAL_RESULTS / name
        path.parent.mkdir(exist_ok=True)
        content = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False)
        path.write_text(content, encoding="utf-8")
