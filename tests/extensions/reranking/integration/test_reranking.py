"""Reranking orders an n-best list by the literal sum of its features."""

import pytest
import torch

from tests.closeness import close_to
from tests.comet_files import REGRESSION, UNIFIED, write_comet
from tests.sweeps import rare
from tests.tiny import TINY_SENTENCES, tiny_causal_lm, tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.extensions.quality.comet import Comet
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models in folders: one for each direction, with weights of different seeds, and models of
    quality.
    """
    folder = tmp_path_factory.mktemp("models")
    models = {
        "forward": tiny_model(0),
        "reverse": tiny_model(1),
        "causal": tiny_causal_lm(),
    }
    for name, model in models.items():
        save_model_folder(model, tiny_tokenizer(), folder / name)
    for name, options in (("quality", UNIFIED), ("regression", REGRESSION)):
        write_comet(folder / name, options)
    return {path.name: path for path in folder.iterdir()}


def load(folder, **options):
    return load_pipeline(folder, device="cpu", **options)


def values_of(answers, name):
    """Return a value of each answer."""
    return [answer[name] for answer in answers]


def descending(scores):
    """Return the positions of scores, the highest first."""
    return sorted(range(len(scores)), key=lambda position: -scores[position])


@torch.no_grad()
def log_probability(translate, source, target):
    """Return log p(target | source), token by token."""
    ids, labels = encode_sentences(translate.tokenizer, [source, target])
    start, total = translate.model.generation_config.decoder_start_token_id, 0.0
    for position, token in enumerate(labels):
        previous = torch.tensor([[start, *labels[:position]]])
        inputs = {"decoder_input_ids": previous, "use_cache": False}
        logits = translate.model(torch.tensor([ids]), **inputs).logits[0, -1]
        total += float(logits.double().log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("weights", [rare([0.5, 0.5]), [2.0, -1.5], rare([0.0, 0.0])])
def test_reranking_is_the_sum_of_weighted_features(folders, weights):
    options = {"num_beams": 4, "num_return_sequences": 4}
    options |= {"return_scores": True, "return_tokens": True}
    reverse_weight, length_weight = weights
    plain = load(folders["forward"])(TINY_SENTENCES[:2], **options)
    translate = load(folders["forward"], rerank_reverse=folders["reverse"])
    options["rerank_reverse_weight"] = reverse_weight
    options["rerank_length_weight"] = length_weight
    reranked = translate(TINY_SENTENCES[:2], **options)
    reverse = load(folders["reverse"])
    for source, before, after in zip(TINY_SENTENCES[:2], plain, reranked, strict=True):
        scores = []
        for answer in before:
            score = log_probability(reverse, answer["translation_text"], source)
            score = answer["log_probability"] + reverse_weight * score
            scores.append(score + length_weight * len(answer["tokens"]))
        order = descending(scores)
        tokens = values_of(before, "tokens")
        assert values_of(after, "tokens") == [tokens[position] for position in order]
        expected = [scores[position] for position in order]
        assert values_of(after, "score") == close_to(expected)


def test_reranking_returns_text_alone_unless_more_is_requested(folders):
    translate = load(folders["forward"], rerank_reverse=folders["reverse"])
    texts, options = TINY_SENTENCES[:2], {"num_beams": 3}
    best = translate(texts, **options, num_return_sequences=3, return_scores=True)
    for answer, (first, *_) in zip(translate(texts, **options), best, strict=True):
        assert answer == {"translation_text": first["translation_text"]}


def test_reranking_by_quality_orders_by_the_scores_of_comet(folders):
    options = {"num_beams": 4, "num_return_sequences": 4, "return_scores": True}
    plain = load(folders["forward"])(TINY_SENTENCES, **options)
    translate = load(folders["forward"], rerank_quality=folders["quality"])
    reranked = translate(TINY_SENTENCES, **options)
    assert [answers[0] for answers in plain] != [answers[0] for answers in reranked]
    for source, before, after in zip(TINY_SENTENCES, plain, reranked, strict=True):
        texts = values_of(before, "translation_text")
        scores = Comet.load(folders["quality"]).score([source] * 4, texts)
        expected = [texts[position] for position in descending(scores)]
        assert values_of(after, "translation_text") == expected
        assert values_of(after, "score") == close_to(sorted(scores, reverse=True))
        log_probabilities = {*values_of(before, "log_probability")}
        assert {*values_of(after, "log_probability")} == log_probabilities


QUALITY, REVERSE = {"rerank_quality": "quality"}, {"rerank_reverse": "reverse"}


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (QUALITY | REVERSE, {}, "Give `rerank_reverse` or `rerank_quality`, not both"),
        ({"rerank_quality": "regression"}, {}, "A model of quality must be a unified_metric"),
        ({"rerank_reverse": "causal"}, {}, "A model with an encoder and a decoder translates, but"),
        ({}, {"rerank_length_weight": 1.0}, "`rerank_length_weight` needs `rerank_reverse`"),
        (QUALITY, {"rerank_length_weight": 1.0}, "`rerank_length_weight` needs `rerank_reverse`"),
        (QUALITY, {"mbr": "chrf"}, "Give `mbr` or `rerank_quality`, not both"),
        (REVERSE, {"mbr": "chrf", "num_beams": 4}, "Give `mbr` or `rerank_reverse`, not both"),
        (
            QUALITY,
            {"num_beams": 1},
            "candidates as translations, and 2 or more; got 1 of `num_beams=1`",
        ),
        (REVERSE, {"num_beams": 2, "num_return_sequences": 3}, "got 3 of `num_beams=2`"),
        (REVERSE, {"do_sample": True, "num_beams": 1}, "Leave out `do_sample`"),
    ],
)
def test_reranking_refuses_what_does_not_fit(folders, models, options, message):
    models = {name: folders.get(value, value) for name, value in models.items()}
    with pytest.raises(ValueError, match=message):
        load(folders["forward"], **models)("A man.", **options)


def test_translate_command_reranks(folders, capsys):
    folder = str(folders["forward"])
    search = ["--num_beams", "3", "--n_best", "3", "--quiet"]
    arguments = ["translate", folder, "A man.", *search]
    reverse = ["--rerank_reverse", str(folders["reverse"])]
    flags = ["--rerank_reverse_weight", "2", "--rerank_length_weight", "1"]
    assert main([*arguments, *reverse, *flags]) == 0
    options = {"num_beams": 3, "num_return_sequences": 3, "return_scores": True}
    options |= {"rerank_reverse_weight": 2.0, "rerank_length_weight": 1.0}
    translate = load(folder, rerank_reverse=folders["reverse"])
    (expected,) = translate(["A man."], **options)
    lines = capsys.readouterr().out.splitlines()
    for line, answer in zip(lines, expected, strict=True):
        assert line == f"{answer['score']:.4f}\t{answer['translation_text']}"
    assert main([*arguments, "--rerank_reverse_weight", "2"]) == 2
    refusal = capsys.readouterr().err
    needed = "`rerank_reverse`, a model of the other direction."
    assert f"`rerank_reverse_weight` needs {needed}" in refusal


def test_tune_reranking_command_prints_flags_of_translate(folders, tmp_path, capsys):
    path, target = tmp_path / "text", tmp_path / "target"
    forward, reverse = str(folders["forward"]), str(folders["reverse"])
    path.write_text("\n".join([*TINY_SENTENCES, "A man runs at 12:30."]) + "\n")
    search = ["--num_beams", "3", "--no_protect"]
    files = ["--input", str(path), "--output", str(target)]
    assert main(["translate", forward, *files, *search]) == 0
    files = ["--source", str(path), "--target", str(target)]
    files += ["--rerank_reverse", reverse]
    tune = ["tune-reranking", forward, *files, "--num_beams"]
    assert main([*tune, "3"]) == 0
    first, flags = capsys.readouterr().out.splitlines()
    assert first.startswith("BLEU ")
    assert first.endswith(" in the order of beam search, with:")
    bleu = first.partition(" reranked")[0] + " "
    words = [*files, "--num_beams", "3", "--bootstrap_samples", "2", *flags.split()]
    for protected, is_same in ((["--no_protect"], True), ([], False)):
        assert main(["evaluate", forward, *words, *protected]) == 0
        assert capsys.readouterr().out.startswith(bleu) == is_same
    assert main([*tune, "1"]) == 2
    refusal = capsys.readouterr().err
    assert "`num_beams` must be 2 or more, the candidates to choose from, got 1." in refusal
