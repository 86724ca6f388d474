"""Write, score and choose alignments of words, and explain a translation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vanilla_transformer.cli.flags import (
    LanguageArguments,
    ModelNameArguments,
    OverwriteArguments,
    ParallelTextArguments,
    ThreadArguments,
    language_settings,
    parse,
    refuse_file_names,
)
from vanilla_transformer.cli.lines import print_texts
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.user_input.schemas import ARGUMENT, Input, Output


class ExplainArguments(ModelNameArguments, LanguageArguments, ThreadArguments, OverwriteArguments):
    """Flags of `explain`.

    By default the checkpoint's generation config decides about the search.
    """

    sentence: Annotated[str, ARGUMENT] = Field(
        description="The sentence, in quotation marks. Its search is the model's own, without "
        "`--protect` and as one sentence: `translate --no_protect` writes the same."
    )
    output: Output = Field(
        description="HTML file to write. It has all of its data and loads nothing."
    )
    translation: str | None = Field(
        None, description="Explain this translation instead of the one that the search finds."
    )
    num_beams: int | None = Field(None, description="Beam size; 1 is greedy search.")
    length_penalty: float | None = Field(
        None, description="Exponent of the length by which beam search divides log-probabilities."
    )
    max_new_tokens: int | None = Field(
        None, description="Maximum number of tokens of the translation."
    )
    device: str | None = Field(
        None, description="cpu, cuda, cuda:1, …; by default the CPU, which is fast enough."
    )


def explain_command(arguments: Sequence[str]) -> None:
    options = parse(ExplainArguments, arguments)
    name, text = options.model, options.sentence
    refuse_file_names("The sentence", [text], "Write the sentence itself.")
    refuse_file_names("--translation", [options.translation], "Write the translation itself.")
    from vanilla_transformer.decoding.loading import check_device
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer

    from .explanation import explain, render_page

    if options.device is not None:
        check_device(options.device)
    model = load_seq2seq(name, "can be explained").to(options.device or "cpu")
    chosen = {}
    for key in ("num_beams", "length_penalty", "max_new_tokens"):
        value = getattr(options, key)
        if value is not None:
            chosen[key] = value
    tokenizer = load_tokenizer(name)
    chosen |= language_settings(tokenizer, options)
    explanation = explain(model, tokenizer, text, options.translation, **chosen)
    write_text_atomically(options.output, render_page(explanation, Path(name).name))
    print(f"{explanation.translation}\nThe page is {options.output}.")


class EvaluateAlignmentsArguments(ParallelTextArguments):
    """Flags of `evaluate-alignments`.

    All files are aligned line by line; words are what white space separates.
    """

    alignments: Input = Field(
        description="Alignments in the format of Moses, such as 0-0 1-2, one line per pair."
    )
    gold_alignments: Input = Field(
        description="Known alignments: sure pairs 0-1 and possible pairs 0p1."
    )


def evaluate_alignments_command(arguments: Sequence[str]) -> None:
    options = parse(EvaluateAlignmentsArguments, arguments)
    from vanilla_transformer.data.readers import stream_text_files

    from .alignment_scores import score_alignments
    from .word_alignments import read_alignments, read_gold_alignments

    pairs = [*stream_text_files(options.source, options.target)]
    alignments = read_alignments(options.alignments, pairs)
    gold = read_gold_alignments(options.gold_alignments, pairs)
    scores = score_alignments(alignments, gold)
    links = sum(map(len, alignments))
    print(
        f"AER {100 * scores.error_rate:.2f}  precision {100 * scores.precision:.2f}  "
        f"recall {100 * scores.recall:.2f}  ({len(pairs)} sentences, {links} links)"
    )


class ChooseAlignmentHeadArguments(ModelNameArguments, ParallelTextArguments, ThreadArguments):
    """Flags of `choose-alignment-head`.

    The files are aligned line by line; validation text serves well.
    """

    alignments: Input | None = Field(
        None,
        description="Known alignments in the format of Moses, such as 0-0 1-2, one line per "
        "sentence. By default a lexical model aligns the words.",
    )


def choose_alignment_head_command(arguments: Sequence[str]) -> None:
    options = parse(ChooseAlignmentHeadArguments, arguments)
    folder = options.model
    if not Path(folder).is_dir():
        raise UserError(
            f"The model must be a folder, whose config.json can be changed, got {folder}."
        )
    from transformers import AutoModelForSeq2SeqLM

    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.decoding.pretrained import load_pretrained, load_tokenizer

    from .alignment_scores import rank_alignment_heads, store_alignment_heads
    from .word_alignments import read_alignments

    pairs = [*stream_text_files(options.source, options.target)]
    expected = None
    if options.alignments is not None:
        expected = read_alignments(options.alignments, pairs)
    model = load_pretrained(AutoModelForSeq2SeqLM, folder)
    best, *others = rank_alignment_heads(model, load_tokenizer(folder), pairs, expected)
    store_alignment_heads(folder, best.heads)
    against = "the given alignments" if options.alignments else "a lexical model"
    for choice in (best, *others[:4]):
        names = ", ".join(f"{layer}-{head}" for layer, head in choice.heads)
        print(f"layer and head {names}: alignment error rate {choice.error:.1%} against {against}")
    rows = [[*head] for head in best.heads]
    print(f"{folder}/config.json has `alignment_heads` {rows}.")


class WriteAlignmentsArguments(ParallelTextArguments, ThreadArguments, OverwriteArguments):
    """
    Flags of `write-alignments`.

    Without a model, a lexical model is fitted to the text in both directions. With one, its
    `alignment_heads` align the words, and with a model of the reverse direction, the heads of both.
    """

    models: Annotated[list[Input], ARGUMENT] = Field(
        [], max_length=2, description="A model, and one of the other direction."
    )
    output: Output | None = Field(
        None, description="Write to this file instead of standard output."
    )


def write_alignments_command(arguments: Sequence[str]) -> None:
    options = parse(WriteAlignmentsArguments, arguments)
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.decoding.unit_links import format_pairs

    pairs = [*stream_text_files(options.source, options.target)]
    if options.models:
        from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer

        from .alignment_scores import align_by_heads

        models = []
        for name in options.models:
            models.append((load_seq2seq(name, "aligns words"), load_tokenizer(name)))
        model, *reverse = models
        links = align_by_heads(*model, pairs, *reverse)
    else:
        from .word_alignments import align_lexically

        links = align_lexically(pairs)
    print_texts((f"{format_pairs(words)}\n" for words in links), options.output)
