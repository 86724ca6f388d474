"""Target prefixes, alternatives and other searches in the pipeline."""

import pytest
import tokenizers
import torch
from transformers import PreTrainedTokenizerFast

from tests.closeness import close_to
from tests.textbook_search import Textbook, force
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.options import TranslationOptions

TEXTS = ["A man.", "Two dogs run.", " "]


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    model = tiny_model(vocab_size=len(tiny_tokenizer), init_std=0.4, decoder_layers=2)
    return TranslationPipeline(model, tiny_tokenizer, max_new_tokens=12, num_beams=2)


def tokens_of(translate, text):
    return translate.tokenizer(text_target=[text], add_special_tokens=False)["input_ids"][0]


def test_pipeline_begins_translations_with_the_prefix_of_each_text(translate):
    one, two, blank = translate(TEXTS, target_prefix=["Ein Mann", "Zwei", ""])
    assert one["translation_text"].startswith("Ein Mann") and two["translation_text"].startswith(
        "Zwei"
    )
    assert blank["translation_text"] == ""
    assert translate(TEXTS[:2], target_prefix="Zwei")[1] == two


def test_pipeline_takes_prefixes_from_an_iterator_over_windows(translate):
    given = iter(["Zwei", "", "Ein"])
    answers = [
        translate([text], target_prefix=given)[0]["translation_text"]
        for text in ("A man.", "Two.", "Dogs.")
    ]
    assert answers[0].startswith("Zwei") and answers[2].startswith("Ein")


def test_pipeline_gives_the_prefix_to_the_first_line_only(translate):
    (answer,) = translate("A man.\nTwo dogs.", target_prefix="Ein Mann")
    first, second = answer["translation_text"].split("\n")
    (alone,) = translate("Two dogs.", target_prefix="")
    assert first.startswith("Ein Mann") and second == alone["translation_text"]


def test_pipeline_completes_the_most_likely_alternatives(translate):
    (found,) = translate("A man.", target_prefix="Ein Mann", alternatives=3, return_tokens=True)
    source, prefix = (
        translate.encode(["A man."], TranslationOptions())[0],
        tokens_of(translate, "Ein Mann"),
    )
    textbook = Textbook(translate.model, source, {"max_new_tokens": 12, "num_beams": 2})
    scores = textbook.log_probabilities([prefix])[0]
    special = set(translate.tokenizer.all_special_ids) - set(textbook.eos)
    scores[list(special)] = -torch.inf
    for answer, token in zip(found, scores.topk(3)[1].tolist(), strict=True):
        textbook.change = force([*prefix, token])
        expected = textbook.search(2)[0]
        assert sum(each["log_probability"] for each in answer["tokens"]) == close_to(
            expected.log_probability
        )
        assert len(answer["tokens"]) == len(expected.tokens)


def test_pipeline_ends_an_alternative_that_is_complete(translate):
    """EOS is one of the alternatives, after which nothing comes."""
    every = len(translate.tokenizer) - len(set(translate.tokenizer.all_special_ids) - {2})
    (found,) = translate("A man.", target_prefix="Ein Mann", alternatives=every, return_tokens=True)
    assert len(found) == every
    assert [len(answer["tokens"]) for answer in found].count(
        len(tokens_of(translate, "Ein Mann")) + 1
    ) >= 1


@pytest.mark.parametrize(("prefix", "found"), [("Ein Hund", "<unk>"), ("</s> Mann", "</s>")])
def test_pipeline_names_prefix_that_the_tokenizer_does_not_know(prefix, found):
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "Ein": 4, "Mann": 5}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    translate = TranslationPipeline(
        tiny_model(vocab_size=6), PreTrainedTokenizerFast(tokenizer_object=plain, **names)
    )
    with pytest.raises(ValueError) as error:
        translate("Ein Mann", target_prefix=prefix, max_new_tokens=4)
    assert str(error.value) == (
        f"A target prefix must be in the model's vocabulary, but {prefix!r} gives {found}."
    )
