"""Distill a tiny teacher on a tiny corpus."""

import json

from tests.tiny import TINY_VOCAB_SIZE, tiny_model, tiny_tokenizer, write_tiny_corpus
from tests.tiny_runs import TINY, no_scores
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.extensions.distillation.distill import distill
from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation
from vanilla_transformer.loading.model_folders import save_model_folder

SIDES = (("source", "a"), ("target", "b"))
# Translations of a random model have warnings.
OPTIONS = TINY | {"drop_warnings": False, "drop_lowest_scores": 0.2, "ema_decay": 0.9}


def write_files(folder):
    """Write a corpus and the models `teacher`, `other` and, with another vocabulary, `german`.

    Return the folder.
    """
    write_tiny_corpus(folder)
    for seed, name in enumerate(("teacher", "other")):
        save_model_folder(tiny_model(seed), tiny_tokenizer(), folder / name)
    german = train_tokenizer(["Zwei Hunde laufen.", "Ein Hund schläft."] * 4, TINY_VOCAB_SIZE)
    save_model_folder(tiny_model(), german, folder / "german")
    return folder


def in_other_letters(source):
    return source.translate(str.maketrans("abcde", "vwxyz"))


def write_candidates(path, scored=True):
    """Write the tiny corpus as sources with three candidates: a wrong one, the translation, and a
    longer one.
    """
    with path.open("w") as file:
        sources = (path.parent / "train.a").read_text().splitlines()
        for number, source in enumerate(sources):
            wrong = (f"{in_other_letters(source)} 1234", "Мужчина спит.")[number % 2]
            texts = [wrong, in_other_letters(source), f"{in_other_letters(source)} q"]
            scores = [
                {"score": score} if scored else {} for score in (2.0, 1.0 + number / 100, 0.5)
            ]
            entries = [{"text": text} | score for text, score in zip(texts, scores, strict=True)]
            file.write(json.dumps({"source": source, "candidates": entries}) + "\n")
    return path


def distillation_flags(files, folder, **changes):
    texts = {
        f"{name}_{side}": files / f"{name}.{end}"
        for name in ("train", "validation")
        for side, end in SIDES
    }
    texts |= {f"test_{side}": files / f"validation.{end}" for side, end in SIDES}
    options = (
        texts
        | {"teacher": files / "teacher", "output_dir": folder, "cache_dir": files / "cache"}
        | OPTIONS
    )
    given = {name: value for name, value in (options | changes).items() if value is not None}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


# Of flags, for text without translations.
CANDIDATES = dict.fromkeys(("train_source", "train_target", "teacher")) | {"drop_warnings": True}
MONOLINGUAL = {"train_target": None}


def distill_tiny(files, folder, **changes):
    return distill(
        *parse_distillation(distillation_flags(files, folder, **changes)), evaluate=no_scores
    )
