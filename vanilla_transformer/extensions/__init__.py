"""
Capabilities around the core, one folder each. This table says what each one is for, and names its
commands.

The core imports an extension only inside a function, where a command, a file or a recipe asks for
it, so that nothing is loaded before it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Extension:
    """
    A folder of this package.

    Attributes:
        purpose: One sentence for readers.
        page: Its page of the documentation, in `docs/`.
        commands: Lines of `--help` by the name of the command, by the group in which `--help` shows
            them. The functions are in the module `commands` of the folder.
    """

    purpose: str
    page: str
    commands: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


EXTENSIONS: Mapping[str, Extension] = {
    "alignments": Extension(
        "Words are aligned with their translations, also by a trained head, and a page explains a "
        "translation.",
        "alignments.md",
        {
            "translate": {
                "explain": (
                    "write a page on the attention, the probabilities and the search of a "
                    "translation"
                )
            },
            "evaluate": {
                "evaluate-alignments": "compute the alignment error rate of a file of alignments",
                "choose-alignment-head": (
                    "store the attention head that aligns words best in a model's configuration"
                ),
            },
            "data": {
                "write-alignments": (
                    "align the words of a parallel text, by their counts or by alignment heads"
                )
            },
        },
    ),
    "augmentation": Extension(
        "Training text changes in each epoch: typos and case, terms, placeholders and noise, and "
        "BPE-dropout.",
        "augmentation.md",
    ),
    "cleaning": Extension(
        "A command cleans text by all rules; a lexical model finds misaligned pairs, and models "
        "give low scores.",
        "clean_a_corpus.md",
        {
            "data": {
                "clean-corpus": "clean the training text of a recipe and report the dropped pairs"
            }
        },
    ),
    "conversion": Extension(
        "Models of other toolkits are converted into models of this package, and back.",
        "convert.md",
        {"convert": {"convert": "convert models from and to the formats of other toolkits"}},
    ),
    "distillation": Extension(
        "A small model learns from the translations of a large one, and from translations of real "
        "target text.",
        "distill.md",
        {
            "train": {
                "distill": "train a student on the translations of a teacher, and compare both"
            },
            "data": {
                "back-translate": (
                    "translate text of the target language back, to train on the pairs"
                )
            },
        },
    ),
    "documents": Extension(
        "HTML, XML, Markdown, subtitles, XLIFF and messages of programs are translated, and their "
        "markup stays.",
        "documents.md",
    ),
    "memory": Extension(
        "Sentences of a translation memory get their translations, and similar ones follow them.",
        "memory.md",
        {
            "train": {
                "adapt": "adapt a model to a translation memory, unless other text gets worse"
            },
            "data": {
                "export-memory": "write the suggestions of a service as a translation memory (TMX)"
            },
        },
    ),
    "preparation": Extension(
        "A corpus of any size is cleaned and tokenized in shards, by several processes or on a "
        "cluster.",
        "scale_out.md",
        {"data": {"prepare": "clean and tokenize a corpus of any size in shards"}},
    ),
    "quality": Extension(
        "COMET scores translations, confidence is calibrated, a stress table shows what weakens a "
        "model, and text is examined before training.",
        "scores.md",
        {
            "evaluate": {
                "calibrate": (
                    "calibrate the confidence and the warnings of a model on validation text"
                ),
            },
            "data": {
                "check-language": (
                    "examine the text of a language pair before training, and say "
                    "what mends its faults"
                )
            },
        },
    ),
    "reranking": Extension(
        "A translation is chosen among candidates by a reverse model, by predicted quality or by "
        "Bayes risk.",
        "reranking.md",
        {"evaluate": {"tune-reranking": "choose the weights of reranking by a reverse model"}},
    ),
    "scale_out": Extension(
        "Texts are translated by several processes, or by all machines of a Ray cluster.",
        "scale_out.md",
    ),
    "serving": Extension(
        "Models answer over HTTP, with a page and the API of LibreTranslate.",
        "serve.md",
        {"serve": {"serve": "serve a model over HTTP"}},
    ),
    "terms": Extension(
        "Terms of a glossary are translated as it says.",
        "terms_and_markup.md",
    ),
}
