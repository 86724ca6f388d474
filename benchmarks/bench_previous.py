"""
Measure `translate --previous` on the history of a repository whose documents are translated.

    git clone https://github.com/fastapi/fastapi
    python -m benchmarks.bench_previous models/en-de fastapi docs/en/docs docs/de/docs
    git clone https://github.com/luanti-org/luanti
    CATALOG=po/de/luanti.po
    python -m benchmarks.bench_previous models/en-de luanti $CATALOG $CATALOG --apart 4

Each change of a translated file is an update: the version before it is the earlier translation, the
source at that time its source, and the source and the file of the change are the new version and
the human's translation. A catalog, PO or TS, has both, so the new version is the catalog of the
change without its translations. Unchanged segments must be byte-equal to the earlier translation.
TER of changed ones is against the human's, with the old wording as draft and from scratch.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import sacrebleu

from benchmarks.harness import BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers.gettext_catalogs import read_catalog, strings_of
from vanilla_transformer.decoding.protection.blocks import Block
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import BlockTranslator, parse_document
from vanilla_transformer.files.formats import DOCUMENT_ENDINGS


@dataclass
class PreviousArguments(BenchmarkArguments):
    """How many updates."""

    count: int = field(default=40, metadata={"help": "Updates with a changed segment."})
    every: int = field(default=1, metadata={"help": "Use every n-th file."})
    apart: int = field(default=1, metadata={"help": "Use every n-th version of a file."})


class Update(NamedTuple):
    """Changed blocks, the human's translations of them, and numbers: kept and byte-equal ones."""

    changed: Sequence[Block]
    references: Sequence[str]
    counts: tuple[int, int]


def read_updates(
    repository: str, source: str, target: str, every: int, apart: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a file and the texts of an update: the old source and its translation, and
    the new ones.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", repository, *words]
        return subprocess.run(command, capture_output=True, text=True).stdout

    names = git("ls-tree", "-r", "--name-only", "HEAD", target).split()
    for name in names[::every]:
        commits = git("log", "--format=%h", "--", name).split()[::apart]
        original = source + name.removeprefix(target)
        for after, before in zip(commits, commits[1:], strict=False):
            texts = []
            for commit in (before, after):
                texts += [git("show", f"{commit}:{path}") for path in (original, name)]
            if all(texts):
                yield name, texts


def compare_documents(
    form: str, old: str, old_translation: str, new: str, reference: str
) -> Update:
    """Return what changed in a document."""
    document = parse_document(new, form, previous=[old, old_translation])
    references, sources = parse_document(reference, form).blocks, parse_document(new, form).blocks
    if len(references) != len(sources):
        raise UserError("A document and its translation must have as many segments.")
    changed = [block for block in document.blocks if block.earlier]
    first = {block.text: text.text for block, text in zip(sources, references, strict=True)}
    after = parse_document(document.render(document.blocks), form).segments()
    known = {segment.written for segment in parse_document(old_translation, form).segments()}
    left, are_equal = {block.text for block in document.blocks}, list[bool]()
    for source, segment in zip(sources, after, strict=False):
        if source.text not in left:
            are_equal.append(segment.written in known)
    human = [first[block.text] for block in changed]
    return Update(changed, human, (len(are_equal), sum(are_equal)))


def compare_catalogs(form: str, old: str, old_translation: str, new: str, reference: str) -> Update:
    """Return what changed in a catalog with translations."""
    store = read_catalog(new, form)
    for unit in store.units:
        if unit.istranslatable():
            unit.target = [""] * len(strings_of(unit.target)) if unit.hasplural() else ""
            unit.markfuzzy(form == "ts")
    document = parse_document(bytes(store).decode(), form, previous=[old_translation])
    known = read_translations(old_translation, form)
    first = read_translations(reference, form, is_final=True)
    human_of = {source: target[0] for (_, source), target in first.items()}
    changed = [block for block in document.blocks if block.earlier and human_of.get(block.text)]
    after = read_translations(document.render(document.blocks), form)
    are_equal = [after[key] == target for key, target in known.items() if key in after]
    human = [human_of[block.text] for block in changed]
    return Update(changed, human, (len(are_equal), sum(are_equal)))


def read_translations(
    text: str, form: str, is_final: bool = False
) -> dict[tuple[str, str], Sequence[str]]:
    """Return the forms of translated messages by their context and source, or of final ones."""
    rows = dict[tuple[str, str], Sequence[str]]()
    for unit in read_catalog(text, form).units:
        is_wanted = not (is_final and unit.isfuzzy())
        if is_wanted and unit.istranslatable() and any(strings_of(unit.target)):
            rows[unit.getcontext(), str(unit.source)] = strings_of(unit.target)
    return rows


def main(arguments: Sequence[str]) -> None:
    usage = "bench_previous MODEL REPOSITORY SOURCE_FOLDER TARGET_FOLDER"
    words, options = read_arguments(PreviousArguments, arguments, usage, (4,))
    model, repository, source_folder, target_folder = words
    from vanilla_transformer.decoding.loading import load_pipeline

    translate = load_pipeline(model, num_beams=1).translate_sentences
    translator = BlockTranslator(translate, find_splitter("abbreviations", "en"))
    kept = equal = updates = 0
    drafted, scratch, human = list[str](), list[str](), list[str]()
    history = read_updates(repository, source_folder, target_folder, options.every, options.apart)
    for name, texts in history:
        form = DOCUMENT_ENDINGS.get(Path(name).suffix)
        if form is None or updates == options.count:
            continue
        compare = compare_catalogs if form in ("po", "ts") else compare_documents
        try:
            changed, references, counts = compare(form, *texts)
        except UserError:
            continue
        if not changed:
            continue
        updates += 1
        kept, equal = kept + counts[0], equal + counts[1]
        drafted += [block.text for block in translator(changed)]
        scratch += [block.text for block in translator([replace(b, earlier=None) for b in changed])]
        human += references
    rows = []
    for system, texts in (("from scratch", scratch), ("with --previous", drafted)):
        ter = sacrebleu.corpus_ter(texts, [human]).score
        bleu = sacrebleu.corpus_bleu(texts, [human]).score
        rows.append({"system": system, "updates": updates, "changed": len(texts), "TER": ter})
        rows[-1] |= {"BLEU": bleu, "kept and byte-equal": f"{equal} of {kept}"}
    write_report("previous", options, rows, [f"Model: {Path(model).name}."])


if __name__ == "__main__":
    sys.exit(run(main))
