"""
Measure `translate --previous` on the history of a repository whose documents are translated, or on
two releases of a package with catalogs.

    git clone https://github.com/fastapi/fastapi
    python -m benchmarks.bench_previous models/en-de fastapi docs/en/docs docs/de/docs
    git clone https://github.com/luanti-org/luanti
    CATALOG=po/de/luanti.po
    python -m benchmarks.bench_previous models/en-de luanti $CATALOG $CATALOG --apart 4
    pip download --no-deps django==2.0 && unzip -d old Django-2.0-py3-none-any.whl
    pip download --no-deps django==5.2 && unzip -d new django-5.2-py3-none-any.whl
    python -m benchmarks.bench_previous models/en-de old new

Each change of a translated file is an update: the version before it is the earlier translation, the
source at that time its source, and the source and the file of the change are the new version and
the human's translation. A catalog, PO or TS, has both, so the new version is the catalog of the
change without its translations. Each catalog that two releases have is an update, too. Unchanged
segments must be byte-equal to the earlier translation. TER of changed ones is against the human's:
from scratch, with the earlier translation as a memory, with the old wording as draft, and with
both.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
    catalogs: str = field(
        default="**/de/LC_MESSAGES/*.po", metadata={"help": "Names of the catalogs of releases."}
    )


class Update(NamedTuple):
    """Changed blocks, the human's translations of them, numbers of kept and byte-equal ones, and
    the pairs of the earlier version.
    """

    changed: Sequence[Block]
    references: Sequence[str]
    counts: tuple[int, int]
    pairs: Sequence[tuple[str, str]]


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


def read_releases(old: str, new: str, names: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of a catalog that two releases have, and the texts of an update."""
    for path in sorted(Path(new).glob(names)):
        earlier = Path(old, path.relative_to(new))
        if earlier.exists():
            versions = earlier.read_text("utf-8"), path.read_text("utf-8")
            yield path.name, [versions[0]] * 2 + [versions[1]] * 2


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
    earlier, translated = parse_document(old, form), parse_document(old_translation, form)
    known = {segment.written for segment in translated.segments()}
    pairs = [(before.text, human.text) for before, human in translated.pair(earlier, translated)]
    left, are_equal = {block.text for block in document.blocks}, list[bool]()
    for source, segment in zip(sources, after, strict=False):
        if source.text not in left:
            are_equal.append(segment.written in known)
    human = [first[block.text] for block in changed]
    return Update(changed, human, (len(are_equal), sum(are_equal)), pairs)


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
    human_of = dict[str, str]()
    for (_, *sources), targets in first.items():
        human_of |= zip(sources, targets, strict=False)
    changed = [block for block in document.blocks if block.earlier and human_of.get(block.text)]
    after = read_translations(document.render(document.blocks), form)
    are_equal = [after[key] == target for key, target in known.items() if key in after]
    human = [human_of[block.text] for block in changed]
    pairs = list[tuple[str, str]]()
    for (_, *sources), targets in known.items():
        pairs += zip(sources, targets, strict=False)
    return Update(changed, human, (len(are_equal), sum(are_equal)), pairs)


def read_translations(
    text: str, form: str, is_final: bool = False
) -> dict[tuple[str, ...], Sequence[str]]:
    """Return the forms of translated messages by their context and sources, or of final ones."""
    rows = dict[tuple[str, ...], Sequence[str]]()
    for unit in read_catalog(text, form).units:
        is_wanted = not (is_final and unit.isfuzzy())
        if is_wanted and unit.istranslatable() and any(strings_of(unit.target)):
            rows[unit.getcontext(), *strings_of(unit.source)] = strings_of(unit.target)
    return rows


def main(arguments: Sequence[str]) -> None:
    usage = "bench_previous MODEL REPOSITORY SOURCE_FOLDER TARGET_FOLDER, or MODEL OLD NEW"
    (model, *words), options = read_arguments(PreviousArguments, arguments, usage, (3, 4))
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.extensions.memory.memory import TranslationMemory

    translate = load_pipeline(model, num_beams=1).translate_sentences
    splitter = find_splitter("abbreviations", "en")
    if len(words) == 2:
        old, release = words
        history = read_releases(old, release, options.catalogs)
    else:
        repository, source, target = words
        history = read_updates(repository, source, target, options.every, options.apart)
    kept = equal = updates = 0
    systems = dict[str, list[str]]()
    human = list[str]()
    for name, texts in history:
        form = DOCUMENT_ENDINGS.get(Path(name).suffix)
        if form is None or updates == options.count:
            continue
        compare = compare_catalogs if form in ("po", "ts") else compare_documents
        try:
            update = compare(form, *texts)
        except UserError:
            continue
        kept, equal = kept + update.counts[0], equal + update.counts[1]
        if not update.changed:
            continue
        updates += 1
        translator = BlockTranslator(translate, splitter)
        memory = TranslationMemory(update.pairs)
        memory_translator = BlockTranslator(partial(translate, memory=memory), splitter)
        new = [replace(block, earlier=None) for block in update.changed]
        translations = {
            "from scratch": translator(new),
            "with --memory": memory_translator(new),
            "with --previous": translator(update.changed),
            "with both": memory_translator(update.changed),
        }
        for system, blocks in translations.items():
            systems.setdefault(system, []).extend(block.text for block in blocks)
        human += update.references
    rows = []
    for system, texts in systems.items():
        ter = sacrebleu.corpus_ter(texts, [human]).score
        bleu = sacrebleu.corpus_bleu(texts, [human]).score
        rows.append({"system": system, "updates": updates, "changed": len(texts), "TER": ter})
        rows[-1] |= {"BLEU": bleu, "kept and byte-equal": f"{equal} of {kept}"}
    write_report("previous", options, rows, [f"Model: {Path(model).name}."])


if __name__ == "__main__":
    sys.exit(run(main))
