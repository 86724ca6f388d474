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
    for name, model in (
        ("forward", tiny_model(0)),
        ("reverse", tiny_model(1)),
        ("causal", tiny_causal_lm()),
    ):
        save_model_folder(model, tiny_tokenizer(), folder / name)
    for name, options in (("quality", UNIFIED), ("regression", REGRESSION)):
        write_comet(folder / name, options)
    return {path.name: path for path in folder.iterdir()}


def load(folder, **options):
    return load_pipeline(folder, device="cpu", **options)


@torch.no_grad()
def log_probability(translate, source, target):
    """Return log p(target | source), token by token."""
    ids, labels = encode_sentences(translate.tokenizer, [source, target])
    start, total = translate.model.generation_config.decoder_start_token_id, 0.0
    for place, token in enumerate(labels):
        previous = torch.tensor([[start, *labels[:place]]])
        logits = translate.model(
            torch.tensor([ids]), decoder_input_ids=previous, use_cache=False
        ).logits[0, -1]
        total += float(logits.double().log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("weights", [rare([0.5, 0.5]), [2.0, -1.5], rare([0.0, 0.0])])
def test_reranking_is_the_sum_of_weighted_features(folders, weights):
    options = {
        "num_beams": 4,
        "return_scores": True,
        "return_tokens": True,
        "num_return_sequences": 4,
    }
    plain = load(folders["forward"])(TINY_SENTENCES[:2], **options)
    given = dict(zip(("rerank_reverse_weight", "rerank_length_weight"), weights, strict=True))
    reranked = load(folders["forward"], rerank_reverse=folders["reverse"])(
        TINY_SENTENCES[:2], **options, **given
    )
    reverse = load(folders["reverse"])
    for source, before, after in zip(TINY_SENTENCES[:2], plain, reranked, strict=True):
        scores = [
            each["log_probability"]
            + weights[0] * log_probability(reverse, each["translation_text"], source)
            + weights[1] * len(each["tokens"])
            for each in before
        ]
        order = sorted(range(4), key=lambda place: -scores[place])
        assert [each["tokens"] for each in after] == [before[place]["tokens"] for place in order]
        assert [each["score"] for each in after] == close_to([scores[place] for place in order])


def test_reranking_returns_text_alone_unless_more_is_requested(folders):
    translate = load(folders["forward"], rerank_reverse=folders["reverse"])
    best = translate(TINY_SENTENCES[:2], num_beams=3, num_return_sequences=3, return_scores=True)
    assert translate(TINY_SENTENCES[:2], num_beams=3) == [
        {"translation_text": answers[0]["translation_text"]} for answers in best
    ]


def test_reranking_by_quality_orders_by_the_scores_of_comet(folders):
    options = {"num_beams": 4, "num_return_sequences": 4, "return_scores": True}
    plain = load(folders["forward"])(TINY_SENTENCES, **options)
    reranked = load(folders["forward"], rerank_quality=folders["quality"])(
        TINY_SENTENCES, **options
    )
    assert [answers[0] for answers in plain] != [answers[0] for answers in reranked]
    for source, before, after in zip(TINY_SENTENCES, plain, reranked, strict=True):
        texts = [each["translation_text"] for each in before]
        scores = Comet.load(folders["quality"]).score([source] * 4, texts)
        order = sorted(range(4), key=lambda place: -scores[place])
        assert [each["translation_text"] for each in after] == [texts[place] for place in order]
        assert [each["score"] for each in after] == close_to(sorted(scores, reverse=True))
        assert {each["log_probability"] for each in after} == {
            each["log_probability"] for each in before
        }


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
    arguments = [
        "translate",
        str(folders["forward"]),
        "A man.",
        "--num_beams",
        "3",
        "--n_best",
        "3",
        "--quiet",
    ]
    reverse = ["--rerank_reverse", str(folders["reverse"])]
    given = ["--rerank_reverse_weight", "2", "--rerank_length_weight", "1"]
    assert main([*arguments, *reverse, *given]) == 0
    weights = {"rerank_reverse_weight": 2.0, "rerank_length_weight": 1.0}
    options = {"num_beams": 3, "num_return_sequences": 3, "return_scores": True} | weights
    (expected,) = load(folders["forward"], rerank_reverse=folders["reverse"])(["A man."], **options)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{each['score']:.4f}\t{each['translation_text']}" for each in expected]
    assert main([*arguments, "--rerank_reverse_weight", "2"]) == 2
    assert (
        "`rerank_reverse_weight` needs `rerank_reverse`, a model of the other direction."
        in capsys.readouterr().err
    )


def test_tune_reranking_command_prints_flags_of_translate(folders, tmp_path, capsys):
    path, target = tmp_path / "text", tmp_path / "target"
    path.write_text("\n".join([*TINY_SENTENCES, "A man runs at 12:30."]) + "\n")
    search = ["--input", str(path), "--output", str(target), "--num_beams", "3", "--no_protect"]
    assert main(["translate", str(folders["forward"]), *search]) == 0
    files = [
        "--source",
        str(path),
        "--target",
        str(target),
        "--rerank_reverse",
        str(folders["reverse"]),
    ]
    assert main(["tune-reranking", str(folders["forward"]), *files, "--num_beams", "3"]) == 0
    first, flags = capsys.readouterr().out.splitlines()
    assert first.startswith("BLEU ") and first.endswith(" in the order of beam search, with:")
    words = [*files, "--num_beams", "3", "--bootstrap_samples", "2", *flags.split()]
    for protected, is_same in ((["--no_protect"], True), ([], False)):
        assert main(["evaluate", str(folders["forward"]), *words, *protected]) == 0
        assert capsys.readouterr().out.startswith(first.partition(" reranked")[0] + " ") == is_same
    assert main(["tune-reranking", str(folders["forward"]), *files, "--num_beams", "1"]) == 2
    assert (
        "`num_beams` must be 2 or more, the candidates to choose from, got 1."
        in capsys.readouterr().err
    )
