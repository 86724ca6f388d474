"""Arguments of the training, validation and test data, and of the tokenizer."""

from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field, ValidationInfo

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.user_input.names import check_names
from vanilla_transformer.user_input.reasons import Reasons
from vanilla_transformer.user_input.schemas import ONE_WORD, Schema, Yaml, parse_yaml

from .cleaning_rules import DROPPED, ON_TOKENS, CleaningRules, Length, Ratio, Share, read_drop
from .readers import CorpusSpec, file_format, load_splits
from .readers.corpora import FILE_ENDINGS
from .stages import ONE_STAGE, Stages, read_stages

_FORGETTING = "forgetting"  # the key of text of a model's former domain in `validation`
_TEXT_KEYS = {"source", "target", "file", "dataset"}  # of a corpus, which must have some of them
_BOTH_DIRECTIONS = "both_directions"  # the key of a corpus that is read forward and in reverse
TokenizerModel = Literal[
    "bpe", "unigram", "wordpiece", "sentencepiece", "characters", "words", "regex"
]
NORMALIZED = ("bpe", "unigram", "wordpiece")  # tokenizers that heed `normalization`
Normalization = Literal["nfc", "nfkc", "none"]
TOKENIZER_MODELS, NORMALIZATIONS = get_args(TokenizerModel), get_args(Normalization)
Vocabulary = Annotated[int, Field(ge=1, le=10**7)]
_Tokens = Annotated[int, Field(ge=1, le=10**7)]  # of a batch
_Sentences = Annotated[int, Field(ge=1, le=10**9)]
NO_TAGS, TARGET_TAGS, BOTH_TAGS = "none", "target", "both"  # values of `language_tags`
WINDOW_PAIRS = 2_000_000  # planned together, if a recipe does not say more
AGREEMENT = "agreement"  # the value of `train_alignments` with which the text itself is aligned
# Augmentations of training pairs that add tokens to the vocabulary.
TOKEN_AUGMENTATIONS = ("placeholders", "inline_terms")
# All augmentations, in the order in which a pair gets them: tokens come last, since they must not
# be changed.
_CHANGES = (
    "title_case",
    "upper_case",
    "lower_case",
    "typos",
    "no_final_period",
    "doubled_words",
    "emoji",
    "html_tags",
    "other_numbers",
)
AUGMENTATIONS = ("phrases", "noise_pairs", *_CHANGES, *TOKEN_AUGMENTATIONS)


def fixed(default: object, text: str, **options: Any) -> Any:
    """Return the field of a recipe key that decides the results of a run: to resume, its value must
    be the same.

    Args:
        text: The help of the key.
        options: Further keywords of `Field`, such as limits.
    """
    return Field(default, description=text, json_schema_extra={"may_change": False}, **options)


def changeable(default: object, text: str, **options: Any) -> Any:
    """Return the field of a recipe key that a resumed run may change: how long it lasts, or where
    it computes.
    """
    return Field(default, description=text, json_schema_extra={"may_change": True}, **options)


def _read_tags(value: Any, info: ValidationInfo) -> Any:
    tags = parse_yaml(value, info)
    if not isinstance(tags, list | None):
        tags = [tags]
    for tag in tags or ():
        if not isinstance(tag, str) or tag.split() != [tag]:
            raise UserError(f"`source_tags` must be words, such as <BT>, got {tag!r}.")
    return tags


class DataArguments(Schema, frozen=True):
    """Text files, a dataset with a `translation` column or a mix of corpora; cleaning, tokenizer
    and batch size.
    """

    train_source: str | None = fixed(
        None,
        "Training text, source side, one sentence per line; or without --train_target a file with "
        "both sides, such as .tmx.",
    )
    train_target: str | None = fixed(None, "Training text, target side, line by line.")
    train_data: str | None = fixed(
        None,
        "Instead of files: a folder that `prepare` has written, with text that is cleaned and "
        "tokenized, and its tokenizer. It may be larger than memory.",
    )
    window_shards: Annotated[int, Field(ge=1, le=10**6)] | None = fixed(
        None,
        "With --train_data: shards whose pairs share batches, which are in memory at a time. "
        f"Default: as many as have {WINDOW_PAIRS:,} pairs.",
    )
    verify_data: bool = changeable(
        False,
        "With --train_data: compare the hash of every shard with the manifest before training, "
        "instead of the size of the shards that are opened.",
    )
    train_alignments: str | None = fixed(
        None,
        "Aligned words of the training text in the format of Moses, line by line, or `agreement`: "
        "words that a lexical model aligns in both directions. One head of cross-attention is "
        "trained toward them. Not in the paper.",
    )
    corpora: Yaml | None = fixed(
        None,
        "Instead of files: a list of corpora (as a flag, in JSON), each with `source` and `target` "
        "(two files of text or of messages), `file` (.tsv, .jsonl, .tmx, .xliff, .po, .ts, "
        ".parquet, or .zip of OPUS) or `dataset` (and `split`), optionally with `name`, `weight`, "
        "`source_language` and `target_language`, and `reverse` or `both_directions`.",
    )
    stages: Yaml | None = fixed(
        None,
        "With --corpora or --train_data: a list of stages (as a flag, in JSON), each with "
        "`corpora` (shares by name) and, but for the last, `until_step`, `until_epoch` or "
        "`until_share` (of --max_steps). Not in the paper.",
    )
    language_tags: Literal["none", "target", "both"] | None = fixed(
        None,
        "Begin each source with a tag of its target language, or of both languages. Default: "
        "target if the corpora have several target languages, otherwise none. Not in the paper.",
    )
    source_tags: Annotated[list[str] | None, BeforeValidator(_read_tags), ONE_WORD] = fixed(
        None,
        "Words with which some sources begin, such as <BT> of `back-translate --tag`: each is one "
        "token of the vocabulary. Not in the paper.",
    )
    sampling_temperature: float = fixed(
        1.0,
        "T of the shares of directions in an epoch, which are proportional to n^(1/T) for n pairs: "
        "1 is as in the corpora, 5 brings small ones near to large ones. Not in the paper.",
        ge=1,
    )
    validation_source: str | None = fixed(None, "Validation text, source side.")
    validation_target: str | None = fixed(None, "Validation text, target side.")
    validation: Yaml | None = fixed(
        None,
        "Instead of these files: a list like `corpora`, of which each direction is scored by "
        "itself, whether it is trained or not. With --init_from, an entry with `forgetting: true` "
        "is text of the model's former domain, in addition: its loss and scores show what "
        "fine-tuning costs.",
    )
    test_source: str | None = fixed(
        None, "Test text, source side; its overlap with the training text is reported."
    )
    test_target: str | None = fixed(None, "Test text, target side.")
    dataset: str | None = fixed(
        None,
        "Instead of files: a folder of save_to_disk, or NAME[:CONFIGURATION] for load_dataset.",
    )
    source_language: str | None = fixed(None, "Code of the source language, such as en.")
    target_language: str | None = fixed(None, "Code of the target language, such as de.")
    tokenizer: str | None = fixed(
        None, "Folder or Hub name of a tokenizer. By default one is trained on the corpus."
    )
    tokenizer_model: TokenizerModel = fixed(
        "bpe",
        "Model of a tokenizer trained on the corpus: bpe, unigram or wordpiece (section 5.1), or "
        "sentencepiece, which Marian and Bergamot read; for sequences that are no language, "
        "characters, words (separated by white space) or regex.",
    )
    tokenizer_pattern: str | None = fixed(
        None,
        "With --tokenizer_model regex: a regular expression, whose matches are tokens, such as "
        "'Cl|Br|.'.",
    )
    normalization: Normalization = fixed(
        "nfc",
        "What the tokenizer does to text before it splits it: white space to single spaces, "
        "invisible characters out, and nfc or nfkc; or none.",
    )
    bpe_dropout: float = fixed(
        0.0,
        "Probability in [0, 1) of dropping a merge, drawn again in each epoch. Not in the paper.",
        ge=0,
        lt=1,
    )
    augment: Yaml | None = fixed(
        None,
        "Shares of training pairs to augment, drawn again in each epoch, such as {typos: 0.05, "
        f"inline_terms: 0.05}}, of {', '.join(AUGMENTATIONS)}. Not in the paper.",
    )
    vocab_size: Vocabulary = fixed(37000, "Entries of the joint vocabulary (section 5.1).")
    vocabulary_sentences: _Sentences = fixed(
        10_000_000,
        "Sentences of both sides on which a vocabulary is trained at most: if the text has more, "
        "those with the lowest hashes.",
    )
    tokens_per_step: _Tokens | None = fixed(
        None,
        "Instead of --max_tokens: padded tokens on either side of a step, divided among all "
        "processes and accumulated batches; 25,000 in the paper (section 5.1).",
    )
    max_tokens: _Tokens = fixed(
        25000, "Padded tokens on either side of a batch, per process (section 5.1)."
    )
    drop: Annotated[
        list[str] | None, BeforeValidator(lambda value: [*read_drop(value)] or None), ONE_WORD
    ] = fixed(
        None,
        "Kinds of pairs to drop, of: "
        + "; ".join(f"{name}: {text}" for name, text in DROPPED.items())
        + ". By default, a side without text or with invalid Unicode is an error.",
    )
    min_score: float | None = fixed(
        None, "Drop pairs with a lower score in the corpus: a column of numbers, or a key `score`."
    )
    max_characters: Length = fixed(None, "Drop pairs with more characters on a side, such as 1000.")
    max_character_ratio: Ratio = fixed(
        None,
        "Drop pairs whose lengths in characters differ by more than this factor, compared with the "
        "median of their corpus, such as 3. Ten characters are added to each length.",
    )
    min_letter_ratio: Share = fixed(
        None,
        "Drop pairs with a smaller share of letters on a side, spaces left aside, such as 0.5.",
    )
    max_length: Length = fixed(None, "Drop pairs with more tokens on a side, including EOS.")
    max_length_ratio: Ratio = fixed(
        None, "Drop pairs with one side more than this many times as long as the other, in tokens."
    )
    score: Yaml | None = fixed(
        None,
        "Drop pairs with a low score: `forward` and `backward` name two models (dual conditional "
        "cross-entropy), or `quality` a COMET model that needs no references, and `min_score` is "
        "the lowest score in (0, 1], or `keep` the share to keep.",
    )
    cache_dir: str | None = changeable(
        None,
        "Folder for cleaned text, tokenized text and trained tokenizers, shared by all processes "
        "of a run. By default a subfolder of the cache of `datasets`.",
    )
    verify_cache: bool = changeable(
        False,
        "Hash the text and all files of the cache that are used. By default a file whose size and "
        "time are as recorded is not read again.",
    )

    @property
    def languages(self) -> dict[str, Any]:
        """Return the default languages of each corpus as keywords of `CorpusSpec`."""
        return {"source_language": self.source_language, "target_language": self.target_language}


def augmentations(data: DataArguments) -> dict[str, float]:
    """Return the shares of training pairs in the section `augment`, in the order of
    `AUGMENTATIONS`.
    """
    shares = {} if data.augment is None else data.augment
    if not isinstance(shares, dict):
        raise UserError(f"`augment` must be a mapping, such as {{typos: 0.05}}, got {shares!r}.")
    with Reasons() as reasons:
        with reasons.collect("augment"):
            check_names(shares, AUGMENTATIONS, "key of `augment`")
        for name, share in shares.items():
            if type(share) not in (int, float) or not 0.0 <= share <= 1.0:
                problem = f"`{name}` of `augment` must be a number in [0, 1], got {share!r}."
                reasons.add(problem, "augment", str(name))
    return {name: shares[name] for name in AUGMENTATIONS if shares.get(name)}


class _Entry(NamedTuple):
    """A corpus of `corpora` or `validation`, in one direction."""

    spec: CorpusSpec
    rules: CleaningRules
    forgetting: bool = False


def _read_entries(data: DataArguments, section: str) -> list[_Entry]:
    """Return the corpora in a section, or the one that other keys name; one of both directions is
    two.
    """
    entries = getattr(data, section)
    if entries is None and section == "corpora":
        entries = [{"dataset": data.dataset}]
        if data.dataset is None:
            entries = [{"source": data.train_source, "target": data.train_target}]
            if data.train_target is None:
                entries = [{"file": data.train_source}]
    if not isinstance(entries, list) or not entries:
        raise UserError(f"`{section}` must be a list with a corpus in it, got {entries!r}.")
    corpora = list[_Entry]()
    with Reasons() as reasons:
        for number, entry in enumerate(entries, start=1):
            prefix = f"Corpus {number} of `{section}`: " if len(entries) > 1 else ""
            with reasons.collect(section, number - 1):
                corpora += _read_entry(data, section, entry, prefix)
    return corpora


def _read_entry(data: DataArguments, section: str, entry: object, prefix: str) -> list[_Entry]:
    """Return the one or two directions of a corpus.

    Args:
        prefix: Text before what `CorpusSpec` refuses.
    """
    if not isinstance(entry, dict):
        raise UserError(
            f"Each corpus of `{section}` must be a mapping, such as {{file: a.tsv}}, got {entry!r}."
        )
    rule_keys = CleaningRules.model_fields
    known = {*CorpusSpec.model_fields, _BOTH_DIRECTIONS}
    known |= {*rule_keys} if section == "corpora" else {_FORGETTING}
    flags = dict[str, Any]()
    for name in (_BOTH_DIRECTIONS, _FORGETTING):
        value = entry.get(name)
        flags[name] = False if value is None else value
    with Reasons() as reasons:
        with reasons.collect():
            check_names(entry, known, "key of a corpus")
        for name, value in flags.items():
            if type(value) is not bool:
                reasons.add(f"`{name}` of a corpus must be true or false, got {value!r}.", name)
        if flags[_BOTH_DIRECTIONS] and entry.get("reverse") is not None:
            requirement = f"`{_BOTH_DIRECTIONS}` of a corpus must be without `reverse`"
            reasons.add(f"{requirement}, got {entry!r}.", _BOTH_DIRECTIONS)
        values = data.languages
        for name, value in entry.items():
            if name in CorpusSpec.model_fields and value is not None:
                values[name] = value
        if values.keys() & _TEXT_KEYS or not reasons:  # or its key may be the unknown one
            with reasons.collect(prefix=prefix):
                spec = CorpusSpec(**values)
        with reasons.collect():
            rule_values = {name: entry.get(name, getattr(data, name)) for name in rule_keys}
            rules = CleaningRules(**rule_values)
    directions = [_Entry(spec, rules, flags[_FORGETTING])]
    if flags[_BOTH_DIRECTIONS]:
        reverse = spec.model_copy(update={"reverse": True})
        directions.append(_Entry(reverse, rules, flags[_FORGETTING]))
    return directions


def corpus_specs(data: DataArguments) -> list[CorpusSpec]:
    """Return the corpora of the training text, from `corpora`, `dataset` or the pair of files."""
    if data.train_data is not None:
        raise UserError(
            f"The training text must be in files or a dataset here, got `train_data` "
            f"{data.train_data}, which is for `train` alone. Name the text that it was made of."
        )
    return [entry.spec for entry in _read_entries(data, "corpora")]


def cleaning_rules(data: DataArguments) -> list[CleaningRules]:
    """Return the cleaning rules of each corpus: the ones of the recipe, with the changes of its
    entry in `corpora`.
    """
    return [entry.rules for entry in _read_entries(data, "corpora")]


def validation_specs(data: DataArguments, forgetting: bool = False) -> list[CorpusSpec]:
    """
    Return the corpora of the section `validation`, or none.

    Args:
        forgetting: Whether to return the ones of the former domain of a model instead.
    """
    entries = [] if data.validation is None else _read_entries(data, "validation")
    return [entry.spec for entry in entries if entry.forgetting is forgetting]


def held_out_specs(data: DataArguments, name: str) -> list[CorpusSpec]:
    """Return the files of the validation or test text, or the dataset's split, which must exist for
    validation.
    """
    source = getattr(data, f"{name}_source")
    target = getattr(data, f"{name}_target")
    if source and target:
        return [CorpusSpec(source=source, target=target, **data.languages)]
    if data.dataset is None:
        return []
    if name == "validation" or name in load_splits(data.dataset):
        return [CorpusSpec(dataset=data.dataset, split=name, **data.languages)]
    return []


def _text_specs(data: DataArguments) -> list[CorpusSpec]:
    """Return the corpora that a recipe reads as text: none beside `train_data`."""
    return [] if data.train_data is not None else corpus_specs(data)


def named_files(data: DataArguments) -> list[str]:
    """Return the files of text that a recipe names, once for a corpus with two directions."""
    names = [
        data.validation_source,
        data.validation_target,
        data.test_source,
        data.test_target,
        data.train_alignments,
    ]
    specs = [*_text_specs(data), *validation_specs(data)]
    specs += validation_specs(data, forgetting=True)
    corpora = {tuple(map(str, spec.files)) for spec in specs}
    names += chain.from_iterable(corpora)
    return [name for name in names if name is not None]


def stages(data: DataArguments, max_steps: int) -> Stages:
    """Return the stages of a recipe, whose training has `max_steps` steps."""
    if data.stages is None:
        return ONE_STAGE
    mix = data
    if data.train_data is not None:
        mix = prepared_recipe(data)
    if mix.corpora is None:
        raise UserError(
            "`stages` must be given with `corpora`, whose shares they have, got it without. Add "
            "them."
        )
    specs = corpus_specs(mix)
    for spec in specs:
        if spec.weight != 1 and data.corpora is not None:  # and not the ones that `prepare` got
            weight = f"{spec.weight:g} for {spec.name}"
            raise UserError(
                f"`weight` must be left out with `stages`, which have shares, got {weight}."
            )
    names = [spec.name for spec in specs]
    return read_stages(data.stages, names, max_steps)


def check_data_arguments(data: DataArguments) -> None:
    """Check values that cannot work, before any file is read."""
    with Reasons() as reasons:
        with reasons.collect():
            _check_training_text(data)
        if not reasons:
            with reasons.collect():
                _check_corpora(data)
        for part in ("validation", "test"):
            keys = (f"{part}_source", f"{part}_target")
            given_keys = [key for key in keys if getattr(data, key) is not None]
            if len(given_keys) == 1:
                requirement = f"`{keys[0]}` and `{keys[1]}` must be given together"
                reasons.add(f"{requirement}, got only one of them.", given_keys[0])
        with reasons.collect():
            _check_tokens(data)


def _check_training_text(data: DataArguments) -> None:
    """Refuse keys that do not name one training text."""
    if data.train_data is not None:
        _check_prepared(data)
        return
    kinds = ("corpora", "dataset", "train_source", "train_target")
    named = [kind for kind in kinds if getattr(data, kind) is not None]
    has_both_sides = file_format(data.train_source or "") in FILE_ENDINGS
    one_text = [["corpora"], ["dataset"], ["train_source", "train_target"]]
    if named not in one_text and not (named == ["train_source"] and has_both_sides):
        if len(named) > 1:
            keys = f"`{named[0]}` and `{named[1]}`"
            raise UserError(f"Give either `dataset` or text files or `corpora`, got {keys}.")
        missing = "train_target" if named else "train_source"
        raise UserError(
            f"`{missing}` must be given (or a `dataset`, `corpora` or `train_data`): the path of a "
            "text file."
        )
    with Reasons() as reasons:
        for name in ("source_language", "target_language"):
            if data.dataset is not None and getattr(data, name) is None:
                requirement = f"`{name}` must be given with a `dataset`"
                reasons.add(f"{requirement}: its key in the `translation` column.", name)


# Keys that change no shard: training from a prepared corpus has them.
OF_MIX = ("stages", "sampling_temperature")
# Keys that training from a prepared corpus has; all others of the text belong to `prepare`.
_BESIDE_PREPARED = (
    *("train_data", "window_shards", "verify_data", "max_tokens", "tokens_per_step", *OF_MIX),
    *("cache_dir", "verify_cache"),
    *("validation_source", "validation_target", "validation"),
    *("source_language", "target_language"),
)


def prepared_recipe(data: DataArguments) -> DataArguments:
    """Return the recipe that shaped the corpus of `train_data`, with the weights of `corpora` if
    the recipe repeats them.
    """
    from .prepared_corpus import read_manifest

    prepared = DataArguments(**read_manifest(str(data.train_data)).recipe)
    if data.corpora is None:
        return prepared
    return prepared.model_copy(update={"corpora": data.corpora})


def _without_weights(corpora: object) -> object:
    """Return the section `corpora` without weights, which change no shard."""
    if not isinstance(corpora, list):
        return corpora
    entries = []
    for entry in corpora:
        if isinstance(entry, dict):
            entry = {name: value for name, value in entry.items() if name != "weight"}
        entries.append(entry)
    return entries


def _check_prepared(data: DataArguments) -> None:
    """Refuse keys that would change text that is prepared. A recipe may repeat how it was."""
    from .prepared_corpus import read_manifest

    try:
        prepared = DataArguments(**read_manifest(str(data.train_data)).recipe)
    except UserFileError:
        return  # opening the corpus reports it
    with Reasons() as reasons:
        for name, field in DataArguments.model_fields.items():
            value = getattr(data, name)
            before = getattr(prepared, name)
            is_repeated = value == before
            if name == "corpora":
                is_repeated = _without_weights(value) == _without_weights(before)
            if name not in _BESIDE_PREPARED and value != field.default and not is_repeated:
                reasons.add(
                    f"`{name}` must be left out with `train_data`, whose text is cleaned "
                    f"and tokenized, got {value}. Give it to `prepare`.",
                    name,
                )


def _check_corpora(data: DataArguments) -> None:
    """Refuse corpora that cannot be read, or whose shares are given twice."""
    with Reasons() as reasons:
        with reasons.collect():
            specs = _text_specs(data)
            is_read = data.dataset is not None and data.train_data is None
            if is_read and specs[0].is_downloaded:
                problem = f"`dataset` must have splits, but {data.dataset} has none"
                hint = "Put it into `corpora`, and name held-out text in `validation`."
                reasons.add(f"{problem}. {hint}", "dataset")
        with reasons.collect():
            keys = ("validation_source", "dataset")
            others = [name for name in keys if getattr(data, name) is not None]
            if validation_specs(data) and others:
                reasons.add(f"Give either `validation` or `{others[0]}`, got both.", others[0])
        if data.stages is not None and data.sampling_temperature != 1.0:
            requirement = "`sampling_temperature` must be left out with `stages`"
            reasons.add(f"{requirement}, which have shares, got both.", "sampling_temperature")


def _check_tokens(data: DataArguments) -> None:
    """Refuse augmentations, alignments and BPE-dropout that do not fit the other keys."""
    with Reasons() as reasons:
        with reasons.collect():
            if "phrases" in augmentations(data) and data.train_alignments is None:
                reasons.add(
                    "`phrases` of `augment` must be given with `train_alignments`, whose aligned "
                    "words bound them, got it without. Add `train_alignments: agreement`, which "
                    "aligns the text itself.",
                    "augment",
                    "phrases",
                )
        if data.train_alignments is not None and data.bpe_dropout:
            reasons.add(
                "`train_alignments` must be given without `bpe_dropout`, got both: the links would "
                "have to be found again for each epoch's tokens of all pairs. Take one of them out "
                "of the recipe.",
                "train_alignments",
            )
        if data.train_alignments not in (None, AGREEMENT):
            rules = [name for name in CleaningRules.model_fields if name not in ON_TOKENS]
            for name in ("corpora", "dataset", *rules):
                if getattr(data, name) is not None:
                    reasons.add(
                        "`train_alignments` must be given with `train_source` and `train_target` "
                        f"and without `{name}`, got both: each line belongs to a line of these "
                        "files. Take one of them out of the recipe.",
                        name,
                    )
        if data.bpe_dropout and data.tokenizer_model != "bpe":
            reasons.add(
                "`bpe_dropout` must be 0 where `tokenizer_model` is not bpe, got "
                f"{data.bpe_dropout} with {data.tokenizer_model}: it leaves out merges, which only "
                "bpe has.",
                "bpe_dropout",
            )
        needs_pattern = data.tokenizer_model == "regex"
        if data.tokenizer is None and needs_pattern != bool(data.tokenizer_pattern):
            reasons.add(
                "`tokenizer_pattern` must be given with `tokenizer_model: regex` and with no "
                f"other, got {data.tokenizer_pattern!r} with {data.tokenizer_model}.",
                "tokenizer_pattern",
            )
