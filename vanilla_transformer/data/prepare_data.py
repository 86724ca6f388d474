"""Load the text of a recipe and tokenize it: `texts = load_texts(data)`, `corpus = tokenize(texts, tokenizer, seed)`.

Cleaned text and token ids are cached by content, so a second run starts at once. Streams are neither cached nor
written to disk.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.file_utils import cached_folder
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import Direction, find_languages

from .arguments import DataArguments, augmentations, corpus_specs, validation_specs
from .augmented_corpus import AugmentedCorpus, find_augmentations
from .bpe_dropout import BpeDropoutCorpus
from .cleaning import (
    CleaningReport,
    CleaningRules,
    Overlap,
    OverlapCounter,
    clean_text,
    find_duplicates,
    hash_pair,
    nothing_left_error,
)
from .corpus import (
    Corpus,
    TokenizedCorpus,
    corpus_numbers,
    drop_by_length,
    find_held_out,
    share_weights,
    temperature_weights,
)
from .readers import (
    CorpusSpec,
    OpenCorpus,
    SentencePair,
    content_key,
    load_splits,
    open_corpus,
    read_pairs,
    read_text_files,
)
from .stages import ONE_STAGE, Stages
from .streaming import StreamedCorpus, StreamedTexts
from .tagged_corpus import TaggedCorpus
from .tokenized_corpus import (
    Encode,
    EncodedPairs,
    TokenTable,
    encode_texts_cached,
    hash_json,
    hash_tokenizer,
    open_arrow_files,
)
from .tuning import ROWS_PER_BATCH

_FORMAT = 1  # of the cached text; another number invalidates all older entries
_SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string()), ("corpus", pa.int32())])
_REPORT_FILE = "report.json"


@dataclass(frozen=True)
class CachedTexts:
    """
    Cleaned training text, memory-mapped.

    Attributes:
        dataset (`datasets.Dataset`): Columns `source`, `target` and `corpus` (its number in the mix).
        key (`str`): A hash of the content.
    """

    dataset: datasets.Dataset
    report: CleaningReport
    key: str

    def first_window(self) -> datasets.Dataset:
        """Return all of the text; see `StreamedTexts.first_window`."""
        return self.dataset


@dataclass(frozen=True)
class ValidationSet:
    """Held-out pairs of one direction."""

    direction: Direction
    pairs: Sequence[SentencePair]


@dataclass(frozen=True)
class Texts:
    """
    The text of a recipe before tokenization.

    Attributes:
        specs, rules: The corpora of the training text, and how they are cleaned.
        training: The training text, cleaned by the rules that need no tokens.
        validation_sets: Held-out pairs by their direction, maybe none.
        test: Held-out pairs, maybe none.
        forgetting: Pairs of the former domain of a model that is fine-tuned, maybe none.
        cache_dir (`Path`): Folder of everything cached.
    """

    data: DataArguments
    specs: list[CorpusSpec]
    rules: CleaningRules
    training: CachedTexts | StreamedTexts
    validation_sets: Sequence[ValidationSet]
    test: Sequence[SentencePair]
    forgetting: Sequence[SentencePair]
    cache_dir: Path

    @property
    def validation(self) -> list[SentencePair]:
        """Return the validation pairs of all directions."""
        return [pair for each in self.validation_sets for pair in each.pairs]

    @property
    def held_out(self) -> dict[str, Sequence[SentencePair]]:
        """Return the held-out pairs by their name, without empty sets."""
        return {name: pairs for name in ("validation", "test") if (pairs := getattr(self, name))}

    def sentences(self) -> Iterator[str]:
        """Yield every training sentence of both sides; of a stream, only the first window."""
        for table in self.training.first_window().with_format("arrow").iter(ROWS_PER_BATCH):
            yield from chain.from_iterable(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))


def load_texts(data: DataArguments, cache_dir: str | Path | None = None) -> Texts:
    """
    Read and clean the text of a recipe. Each file is opened and hashed once.

    Args:
        cache_dir (`str`): Used instead of the recipe's `cache_dir`.

    Raises:
        OSError: a file or dataset is missing or cannot be read.
        ValueError: a corpus has another form than its spec says (with file and line), or cleaning leaves nothing.
    """
    specs, rules = corpus_specs(data), CleaningRules.from_arguments(data)
    folder = Path(cache_dir or data.cache_dir or Path(datasets.config.HF_DATASETS_CACHE) / "vanilla_transformer")
    validation, test = _read_validation_sets(data), _read_test_pairs(data)
    training: CachedTexts | StreamedTexts
    if data.stream:
        training = StreamedTexts(specs, rules, data.stream_window)
    else:
        training = _load_training_texts(specs, rules, folder)
    return Texts(data, specs, rules, training, validation, test, _read_forgetting_pairs(data), folder)


def tokenize(
    texts: Texts,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    num_proc: int | None = None,
    encode: Encode | None = None,
    stages: Stages = ONE_STAGE,
) -> Corpus:
    """
    Tokenize the training text, with the augmentations and the BPE-dropout that the recipe requests.

    Args:
        seed (`int`): Seed of augmentation, BPE-dropout, and the sampling of pairs if a weight is not an integer.
        num_proc (`int`): Number of processes. By default all cores, if the text is long enough.
        encode: Used instead of `encode_sentences` with `tokenizer`. The cache identifies both by `tokenizer`.
        stages (`Stages`): The shares of the corpora in each stage. By default their weights decide.

    Raises:
        ValueError: the rules on lengths leave nothing, or nothing of a stage's corpus; or BPE-dropout does not
            support the tokenizer.
        OSError: the cache cannot be written.
    """
    data, encode, languages = texts.data, encode or partial(encode_sentences, tokenizer), find_languages(tokenizer)
    tokens = [] if languages is None else [languages.tokens(spec.direction) for spec in texts.specs]
    limit = data.max_tokens - max((len(each.source) for each in tokens), default=0)
    corpus: Corpus
    if isinstance(texts.training, StreamedTexts):
        weights = _weights(texts, [1] * len(texts.specs), stages)  # shares of a window do not depend on lengths
        corpus = StreamedCorpus(texts.training, encode, texts.held_out, num_proc, weights)
    else:
        encoded = encode_texts_cached(
            texts.training.dataset, texts.training.key, encode, hash_tokenizer(tokenizer), texts.cache_dir, num_proc
        )
        corpus = _build_corpus(texts, texts.training, EncodedPairs(TokenTable(encoded)), seed, stages)
    first = texts.training.first_window()
    augment = find_augmentations(augmentations(data), first, texts.training.key, texts.cache_dir)
    if augment:
        corpus = AugmentedCorpus(corpus, augment, encode, seed, limit)
    if data.bpe_dropout:
        corpus = BpeDropoutCorpus(corpus, tokenizer, data.bpe_dropout, seed, limit)
    return corpus if languages is None else TaggedCorpus(corpus, tokens, languages.replaced)


def _build_corpus(
    texts: Texts, training: CachedTexts, pairs: EncodedPairs, seed: int, stages: Stages
) -> TokenizedCorpus:
    report = CleaningReport.from_dict(training.report.to_dict())  # the rules on lengths add to it
    pairs = drop_by_length(pairs, training.dataset, texts.rules, report)
    overlaps = {name: _count_overlap(training, held_out, texts.cache_dir) for name, held_out in texts.held_out.items()}
    counts = np.bincount(corpus_numbers(training.dataset, pairs), minlength=len(texts.specs)).tolist()
    return TokenizedCorpus(training.dataset, pairs, _weights(texts, counts, stages), seed, report, overlaps)


def _weights(texts: Texts, counts: Sequence[int], stages: Stages) -> list[list[float]]:
    """Return the weights of the corpora in each stage, given their numbers of pairs."""
    specs, temperature = texts.specs, texts.data.sampling_temperature
    weights = [spec.weight for spec in specs]
    if stages != ONE_STAGE:
        return [share_weights([spec.name for spec in specs], counts, shares) for shares in stages.shares]
    if temperature == 1.0:
        return [weights]
    return [temperature_weights(counts, weights, [spec.direction for spec in specs], temperature)]


def _read_validation_sets(data: DataArguments) -> list[ValidationSet]:
    """Read the section `validation`, the validation files, or the dataset's split `validation`, which must exist."""
    if data.validation is not None:
        pairs: dict[Direction, list[SentencePair]] = {}
        for spec in validation_specs(data):
            pairs.setdefault(spec.direction, []).extend(_read_corpus(spec))
        return [ValidationSet(direction, found) for direction, found in pairs.items()]
    direction = Direction(data.source_language, data.target_language)
    if data.validation_source and data.validation_target:
        return [ValidationSet(direction, read_text_files(data.validation_source, data.validation_target))]
    return [] if data.dataset is None else [ValidationSet(direction, _read_split(data, "validation"))]


def _read_forgetting_pairs(data: DataArguments) -> list[SentencePair]:
    if data.forgetting_source and data.forgetting_target:
        return read_text_files(data.forgetting_source, data.forgetting_target)
    return []


def _read_test_pairs(data: DataArguments) -> list[SentencePair]:
    """Read the test files, or the dataset's split `test` if it exists."""
    if data.test_source and data.test_target:
        return read_text_files(data.test_source, data.test_target)
    if data.dataset is None or "test" not in load_splits(data.dataset, data.stream):
        return []
    return _read_split(data, "test")


def _read_split(data: DataArguments, split: str) -> list[SentencePair]:
    return _read_corpus(CorpusSpec(dataset=data.dataset, split=split, **data.languages), data.stream)


def _read_corpus(spec: CorpusSpec, streaming: bool = False) -> list[SentencePair]:
    with open_corpus(spec, streaming=streaming) as corpus:
        return [pair for pair in read_pairs(corpus) if all(pair)]


def _load_training_texts(specs: list[CorpusSpec], rules: CleaningRules, cache_dir: Path) -> CachedTexts:
    """Return the cleaned text of all corpora; read and clean it only if the cache does not hold it."""
    with ExitStack() as stack:
        corpora = [stack.enter_context(open_corpus(spec)) for spec in specs]
        key = hash_json(_FORMAT, [content_key(corpus) for corpus in corpora], rules.on_text)
        folder = cached_folder(cache_dir, f"texts-{key}", partial(_write_texts, corpora=corpora, rules=rules))
    report = CleaningReport.from_dict(json.loads((folder / _REPORT_FILE).read_text(encoding="utf-8")))
    return CachedTexts(open_arrow_files(folder), report, key)


def _write_texts(folder: Path, corpora: list[OpenCorpus], rules: CleaningRules) -> None:
    """Read and clean all corpora, with one batch of text in memory at a time."""
    report, hashes = CleaningReport(), bytearray()
    with pa.ipc.new_stream(str(folder / "texts.arrow"), _SCHEMA) as file:
        for number, corpus in enumerate(corpora):
            name = corpus.spec.name
            numbered = tqdm(enumerate(read_pairs(corpus), start=1), f"Reading {name}", unit=" pairs", delay=1)
            for batch in _batched(clean_text(corpus.spec, numbered, rules, report)):
                if rules.drop_duplicates:
                    hashes += b"".join(map(hash_pair, batch))
                sources, targets = zip(*batch, strict=True)
                numbers = pa.array(np.full(len(batch), number, dtype=np.int32))
                file.write_batch(pa.record_batch([pa.array(sources), pa.array(targets), numbers], schema=_SCHEMA))
    if not report.kept:
        raise nothing_left_error(report)
    if rules.drop_duplicates:
        _drop_duplicates(folder / "texts.arrow", find_duplicates(hashes), report)
    (folder / _REPORT_FILE).write_text(json.dumps(report.to_dict()), encoding="utf-8")


def _batched(pairs: Iterable[SentencePair]) -> Iterator[list[SentencePair]]:
    pairs = iter(pairs)
    while batch := list(islice(pairs, ROWS_PER_BATCH)):
        yield batch


def _drop_duplicates(path: Path, duplicates: np.ndarray, report: CleaningReport) -> None:
    """Rewrite the file without the rows where `duplicates` is True."""
    if not duplicates.any():
        return
    all_rows = path.replace(path.with_suffix(".all"))
    first = 0
    with (
        pa.memory_map(str(all_rows)) as source,
        pa.ipc.open_stream(source) as batches,
        pa.ipc.new_stream(str(path), _SCHEMA) as file,
    ):
        for batch in batches:
            mask = duplicates[first : first + batch.num_rows]
            first += batch.num_rows
            file.write_batch(batch.filter(pa.array(~mask)))
            dropped = batch.filter(pa.array(mask))
            examples = map(SentencePair, dropped["source"].to_pylist(), dropped["target"].to_pylist())
            report.add("duplicates", list(examples))
    all_rows.unlink()


def _count_overlap(texts: CachedTexts, held_out: Sequence[SentencePair], cache_dir: Path) -> Overlap:
    """Count how much of the held-out text the training text contains, or return the cached count."""

    def write(folder: Path) -> None:
        counter = OverlapCounter(held_out)
        counter.add(find_held_out(texts.dataset, counter))
        (folder / _REPORT_FILE).write_text(json.dumps(asdict(counter.overlap())), encoding="utf-8")

    folder = cached_folder(cache_dir, f"overlap-{hash_json(_FORMAT, texts.key, held_out)}", write)
    return Overlap(**json.loads((folder / _REPORT_FILE).read_text(encoding="utf-8")))
