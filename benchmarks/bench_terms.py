"""
Count the terms that models use as a glossary asks, on the demo corpus or on a user's text.

    python -m benchmarks.bench_terms runs/demo runs/terms
    python -m benchmarks.bench_terms runs/multi30k_en_de --source test.en --target test.de \
        --train_source train.en --train_target train.de

On the demo corpus, the first set has nouns of the corpus, for which the glossary asks for other German nouns ("dog":
"Köter" instead of "Hund"). The second set has nouns that are new in both languages. The references come from the
corpus's grammar, so they have the gender, case and number of the new nouns, while the glossary gives the nominative.
On other text, the glossary has the most frequent translations with a capital (German nouns) of the words of the
training text, or the second most frequent ones, and a set has the test sentences whose references use them. `soft` and
`hard` are for models that were trained with inline terms. `--write FOLDER` writes the sets as text files, for
`vanilla-transformer evaluate`.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import progress
from benchmarks.term_sets import TermSet, build_term_sets, find_term_sets
from vanilla_transformer.data.readers import read_text_files
from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
from vanilla_transformer.decoding.terms import EXACT, HARD, SOFT
from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.evaluation.term_use import measure_term_use
from vanilla_transformer.file_utils import write_text_atomically
from vanilla_transformer.text.inline_terms import knows_inline_terms


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    sets = build_term_sets(options.sentences) if options.source is None else _read_term_sets(options)
    if options.write is not None:
        for number, each in enumerate(sets, start=1):
            _write(Path(options.write), f"terms{number}", each)
    print("| model | set | glossary | terms as given | with any ending | BLEU |\n|---|---|---|---|---|---|")
    for folder in options.models:
        translate = TranslationPipeline(load_seq2seq(folder, "translates"), load_tokenizer(folder), device="cpu")
        for each in sets:
            for row in compare_modes(translate, each):
                print(f"| {folder} | {each.name} | {row} |", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_terms", allow_abbrev=False, description=__doc__.split("\n")[1])
    parser.add_argument("models", nargs="*", help="folders of models")
    parser.add_argument("--sentences", type=int, default=500, help="number of sentences in each set, at most")
    parser.add_argument("--source", help="test text, source side; by default sentences of the demo corpus's grammar")
    parser.add_argument("--target", help="its references")
    parser.add_argument("--train_source", help="text from which the glossaries come, source side")
    parser.add_argument("--train_target", help="its translations")
    parser.add_argument("--write", metavar="FOLDER", help="write the sets to terms1.en, terms1.de, terms1.tsv, …")
    options = parser.parse_args(arguments)
    if options.sentences < 1:
        parser.error(f"--sentences must be 1 or more, got {options.sentences}")
    files = ("source", "target", "train_source", "train_target")
    if len({getattr(options, name) is None for name in files}) > 1:
        parser.error(f"--{', --'.join(files)} must be given together")
    return options


def _read_term_sets(options: argparse.Namespace) -> list[TermSet]:
    test = read_text_files(options.source, options.target)
    sets = find_term_sets(test, read_text_files(options.train_source, options.train_target))
    return [each._replace(pairs=each.pairs[: options.sentences]) for each in sets]


def compare_modes(translate: TranslationPipeline, terms: TermSet) -> Iterator[str]:
    """Yield the cells of a row without a glossary and for each mode that the model supports."""
    sources, references = map(list, zip(*terms.pairs, strict=True))
    for mode in (None, *([SOFT, HARD] if knows_inline_terms(translate.tokenizer) else []), EXACT):
        progress(f"Translating {len(sources)} sentences, {terms.name}, {mode or 'without a glossary'}")
        options: dict[str, Any] = {} if mode is None else {"glossary": terms.glossary, "term_mode": mode}
        translations = [answer["translation_text"] for answer in translate(sources, progress_bar=False, **options)]
        use = measure_term_use(terms.glossary, sources, translations)
        shares = f"{use.exact / use.terms:.1%} | {use.inflected / use.terms:.1%}"
        yield f"{mode or 'none'} | {shares} | {score(translations, references).bleu:.1f}"


def _write(folder: Path, name: str, terms: TermSet) -> None:
    sources, references = zip(*terms.pairs, strict=True)
    for end, lines in (("en", sources), ("de", references), ("tsv", map("\t".join, _rows(terms)))):
        write_text_atomically(folder / f"{name}.{end}", (f"{line}\n" for line in lines))


def _rows(terms: TermSet) -> list[tuple[str, str]]:
    return [("source", "target"), *((term.source, term.target) for term in terms.glossary.terms)]


if __name__ == "__main__":
    main()
