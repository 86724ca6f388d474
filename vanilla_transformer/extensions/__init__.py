"""
Capabilities around the core, one folder each. This table says what each one plugs into the core.

The core imports no extension. It finds them here by name when a command, a file or a recipe asks for one, so that
nothing is loaded before it is used. Without a folder and its row, everything else works.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

from vanilla_transformer.errors import UserError

# The doors of the core besides commands.
INITIAL_MODEL = "initial model"  # a `ModelLoader`: loads the model that `init_from` names
STRESS_TABLE = "stress table"  # measures how a model copes with noise, for `check-model`
DOCUMENTS = "documents"  # reads, translates and writes documents
AUGMENTATION = "augmentation"  # an `Augmentation`: changes training text in each epoch
LOW_SCORES = "low scores"  # drops the pairs of cached text with low scores by models, `drop_low_scores`
MISALIGNMENT = "misalignment"  # finds pairs whose sides are no translations of each other, `find_misaligned`
TOKEN_LINKS = "links between tokens"  # returns the `TokenLinks` of the texts of a recipe, given a tokenizer
LOSS_TERM = "a term of the loss"  # returns the `LossTerm` of a recipe, given the configuration of the model
DECODING_STEPS = "decoding steps"  # yields steps around a search, given its pipeline and the options of a request
GLOSSARY = "glossary"  # reads terms and their translations
SCALE_OUT = "scale out"  # translates by several processes or machines
QUALITY_MODEL = "model of quality"  # scores translations by a model of people's judgments, `Comet`
RUNTIMES = "runtimes"  # a `Runtime` for each toolkit that runs converted folders
RERANKERS = "rerankers"  # classes of models that order n-best lists, by the argument of the pipeline for each


@dataclass(frozen=True)
class Extension:
    """
    A folder of this package.

    Attributes:
        purpose: One sentence for readers.
        page: Its page of the documentation, in `docs/`.
        commands: Lines of `--help` by the name of the command, by the group in which `--help` shows them. The
            functions are in the module `commands` of the folder.
        doors: Import path of the object for each door, from this package.
    """

    purpose: str
    page: str
    commands: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    doors: Mapping[str, str] = field(default_factory=dict)


EXTENSIONS: Mapping[str, Extension] = {
    "alignments": Extension(
        "Words are aligned with their translations, also by a trained head, and a page explains a translation.",
        "alignments.md",
        {
            "translate": {
                "explain": "write a page on the attention, the probabilities and the search of a translation"
            },
            "evaluate": {
                "evaluate-alignments": "compute the alignment error rate of a file of alignments",
                "choose-alignment-head": "store the attention head that aligns words best in a model's configuration",
            },
            "data": {"write-alignments": "align the words of a parallel text, by their counts or by alignment heads"},
        },
        {
            TOKEN_LINKS: "alignments.token_alignments:load_alignments",
            LOSS_TERM: "alignments.guided_alignment:create_guided_alignment",
        },
    ),
    "augmentation": Extension(
        "Training text changes in each epoch: typos and case, terms, placeholders and noise, and BPE-dropout.",
        "augmentation.md",
        doors={AUGMENTATION: "augmentation"},
    ),
    "cleaning": Extension(
        "A command cleans text by all rules; a lexical model finds misaligned pairs, and models give low scores.",
        "clean_a_corpus.md",
        {"data": {"clean-corpus": "clean the training text of a recipe and report the dropped pairs"}},
        {LOW_SCORES: "cleaning.low_scores:drop_low_scores", MISALIGNMENT: "cleaning.misalignment"},
    ),
    "conversion": Extension(
        "Models of other toolkits are converted into models of this package, and back, and their runtimes run them.",
        "convert.md",
        {"convert": {"convert": "convert models from and to the formats of other toolkits"}},
        {INITIAL_MODEL: "conversion.from_transformers:load_converted", RUNTIMES: "conversion.runtimes:RUNTIMES"},
    ),
    "distillation": Extension(
        "A small model learns from the translations of a large one, and from translations of real target text.",
        "distill.md",
        {
            "train": {"distill": "train a student on the translations of a teacher, and compare both"},
            "data": {"back-translate": "translate text of the target language back, to train on the pairs"},
        },
    ),
    "documents": Extension(
        "HTML, XML, Markdown, subtitles and XLIFF are translated, and their markup stays.",
        "documents.md",
        doors={DOCUMENTS: "documents"},
    ),
    "quality": Extension(
        "COMET scores translations, confidence is calibrated, a stress table shows what weakens a model, and text is "
        "examined before training.",
        "scores.md",
        {
            "evaluate": {
                "calibrate": "calibrate the confidence and the warnings of a model on validation text",
            },
            "data": {
                "check-language": "examine the text of a language pair before training, and say what mends its faults"
            },
        },
        {STRESS_TABLE: "quality.stress", QUALITY_MODEL: "quality.comet:Comet"},
    ),
    "reranking": Extension(
        "A translation is chosen among candidates by a reverse model, by predicted quality or by Bayes risk.",
        "reranking.md",
        {"evaluate": {"tune-reranking": "choose the weights of reranking by a reverse model"}},
        {DECODING_STEPS: "reranking.reranking:steps", RERANKERS: "reranking.reranking:RERANKERS"},
    ),
    "scale_out": Extension(
        "Texts are translated by several processes, or by all machines of a Ray cluster.",
        "scale_out.md",
        doors={SCALE_OUT: "scale_out"},
    ),
    "serving": Extension(
        "Models answer over HTTP, with a page and the API of LibreTranslate.",
        "serve.md",
        {"serve": {"serve": "serve a model over HTTP"}},
    ),
    "terms": Extension(
        "Terms of a glossary are translated as it says.",
        "terms_and_markup.md",
        doors={DECODING_STEPS: "terms.terms:steps", GLOSSARY: "terms.glossary:as_glossary"},
    ),
}


def find(door: str) -> Any:
    """Return the object that an extension plugs into a door, or None if no extension does."""
    name = next((name for name, extension in EXTENSIONS.items() if door in extension.doors), None)
    return None if name is None else load(name, door)


def load(name: str, door: str, wanted: str = "This") -> Any:
    """Return the object that an extension, which something needs, plugs into a door."""
    return resolve_name(f"{__name__}.{require(name, wanted).doors[door]}")


def require(name: str, wanted: str = "This") -> Extension:
    """Return the row of an extension that something needs."""
    if name not in EXTENSIONS:
        raise UserError(f"{wanted} needs the extension {name!r}, which this installation lacks. Leave it out.")
    return EXTENSIONS[name]
