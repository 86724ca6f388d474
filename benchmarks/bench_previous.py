"""
Measure `translate --previous` on the history of a repository whose documents are translated.

    git clone https://github.com/fastapi/fastapi
    python -m benchmarks.bench_previous models/en-de fastapi docs/en/docs docs/de/docs

Each change of a translated file is an update: the version before it is the earlier translation, the
source at that time its source, and the source and the file of the change are the new version and
the human's translation. Unchanged segments must be byte-equal to the earlier translation. TER of
changed ones is against the human's, with the old wording as draft and from scratch.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import sacrebleu

from benchmarks.harness import BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import BlockTranslator, parse_document
from vanilla_transformer.files.formats import DOCUMENT_ENDINGS


@dataclass
class PreviousArguments(BenchmarkArguments):
    """How many updates."""

    count: int = field(default=40, metadata={"help": "Updates with a changed segment."})
    every: int = field(default=1, metadata={"help": "Use every n-th file."})


def read_updates(
    repository: str, source: str, target: str, every: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a file and the texts of an update: the old source and its translation, and
    the new ones.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", repository, *words]
        return subprocess.run(command, capture_output=True, text=True).stdout

    names = git("ls-tree", "-r", "--name-only", "HEAD", target).split()
    for name in names[::every]:
        commits = git("log", "--format=%h", "--", name).split()
        original = source + name.removeprefix(target)
        for after, before in zip(commits, commits[1:], strict=False):
            texts = []
            for commit in (before, after):
                texts += [git("show", f"{commit}:{path}") for path in (original, name)]
            if all(texts):
                yield name, texts


def main(arguments: Sequence[str]) -> None:
    usage = "bench_previous MODEL REPOSITORY SOURCE_FOLDER TARGET_FOLDER"
    words, options = read_arguments(PreviousArguments, arguments, usage, (4,))
    model, repository, source_folder, target_folder = words
    from vanilla_transformer.decoding.loading import load_pipeline

    translate = load_pipeline(model, num_beams=1).translate_sentences
    translator = BlockTranslator(translate, find_splitter("abbreviations", "en"))
    kept = equal = updates = 0
    drafted, scratch, human = list[str](), list[str](), list[str]()
    history = read_updates(repository, source_folder, target_folder, options.every)
    for name, (old, old_translation, new, reference) in history:
        form = DOCUMENT_ENDINGS.get(Path(name).suffix)
        if form is None or updates == options.count:
            continue
        try:
            document = parse_document(new, form, previous=[old, old_translation])
            references = parse_document(reference, form).blocks
            sources = parse_document(new, form).blocks
        except UserError:
            continue
        changed = [block for block in document.blocks if block.earlier]
        if len(references) != len(sources) or not changed:
            continue
        updates += 1
        first = {block.text: text.text for block, text in zip(sources, references, strict=True)}
        drafted += [block.text for block in translator(changed)]
        scratch += [block.text for block in translator([replace(b, earlier=None) for b in changed])]
        human += [first[block.text] for block in changed]
        rendered = document.render(document.blocks)
        after = parse_document(rendered, form).segments()
        known = {segment.written for segment in parse_document(old_translation, form).segments()}
        left = {block.text for block in document.blocks}
        for source, segment in zip(sources, after, strict=False):
            if source.text not in left:
                kept += 1
                equal += segment.written in known
    rows = []
    for system, texts in (("from scratch", scratch), ("with --previous", drafted)):
        ter = sacrebleu.corpus_ter(texts, [human]).score
        bleu = sacrebleu.corpus_bleu(texts, [human]).score
        rows.append({"system": system, "updates": updates, "changed": len(texts), "TER": ter})
        rows[-1] |= {"BLEU": bleu, "kept and byte-equal": f"{equal} of {kept}"}
    write_report("previous", options, rows, [f"Model: {Path(model).name}."])


if __name__ == "__main__":
    sys.exit(run(main))
