"""A tokenizer with a model of SentencePiece: its ids, its text, its file, and all that tokenizers
are used for.
"""

import copy
import json
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.processes import Forked
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.tokenizer_training import (
    add_augmentation_tokens,
    extend_tokenizer,
    train_tokenizer,
)
from vanilla_transformer.decoding.constraints import word_continuations
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import TARGET_TAG, Direction, add_language_tags
from vanilla_transformer.text.protection import MASKS
from vanilla_transformer.tokenization_vanilla_transformer import (
    SENTENCEPIECE_FILE,
    with_normalization,
)
from vanilla_transformer.training.initialization import replace_vocabulary
from vanilla_transformer.training.model_creation import special_token_ids

WITHOUT_PACKAGE = Path(__file__).parents[1] / "without_package.py"
TEXTS = []
for pair in read_demo_corpus("train", 500):
    TEXTS += [pair.source, pair.target]
ODD = ["", " ", "  a   b  ", "\ta\u00a0b\u3000c\u2003d\n", "ＡＢＣ１２３", "ﬁn ½ ² ™"]
ODD += ["日本語のテキスト", "“„’–…", "👩\u200d🚀 ✌\ufe0f", "e\u0301 u\u0308 a\u0302\u0301"]
ODD += ["ệ e\u0323\u0302", "a\u00adb", "m\u0007a", "▁a ▁", "～ ﷺ", "\ufeffa"]
ODD += ["a\u200bb", "עִבְרִית", "हिन्दी क्\u200dष", "สุนัข น้ำ", "ⓐ㍿㌔", "𝐀𝔅"]
ODD += ["a" * 300, "a" + " " * 50 + "b"]
NAMES = ["</s>", "x</s>y", "<unk>", "<0x41>", "a <0xE2><0x82> b"]
NAMES += ["<pad>", "<s>", "</s></s>", "<</s>>"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=800, model="sentencepiece")


@pytest.fixture(scope="module")
def processor(tokenizer):
    proto = tokenizer.sentencepiece_model
    return sentencepiece.SentencePieceProcessor(model_proto=proto)


def ids_by_processor(processor, texts):
    """Return the ids of texts, with the end."""
    return [[*ids, 0] for ids in processor.encode(texts)]


def normalized(processor, text):
    return processor.normalize(text).removeprefix("▁").replace("▁", " ")


def test_entries_are_the_pieces_and_padding_as_the_last_id(tokenizer, processor):
    assert len(processor) == 800 and len(tokenizer) == 801
    for index in range(800):
        piece = tokenizer.convert_ids_to_tokens(index)
        assert piece == processor.id_to_piece(index)
    ids = {"pad_token_id": 800, "bos_token_id": None, "eos_token_id": 0}
    ids["decoder_start_token_id"] = 800
    assert special_token_ids(tokenizer) == ids and tokenizer.unk_token_id == 1
    assert {*tokenizer.all_special_ids} == {0, 1, 800}


@pytest.mark.parametrize("texts", [TEXTS, ODD], ids=["corpus", "odd"])
def test_ids_equal_the_ids_of_sentencepiece(tokenizer, processor, texts):
    assert tokenizer(texts)["input_ids"] == ids_by_processor(processor, texts)


@pytest.mark.parametrize("text", [*TEXTS[:20], *ODD, *NAMES])
def test_text_comes_back_as_sentencepiece_normalizes_it(tokenizer, processor, text):
    ids = tokenizer(text)["input_ids"]
    expected = normalized(processor, text)
    assert tokenizer.decode(ids, skip_special_tokens=True) == expected
    assert tokenizer.batch_decode([ids], skip_special_tokens=True) == [expected]


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"])))
@example(text="</s><0x41>")
def test_any_text_comes_back_and_has_no_special_token(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == 0 and not {*ids[:-1]} & {0, 1, 800}
    (once,) = tokenizer.batch_decode([ids], skip_special_tokens=True)
    assert tokenizer(once)["input_ids"] == ids


def test_file_is_saved_beside_the_tokenizer(tokenizer, tmp_path):
    """Save it again after loading."""
    first, second = tmp_path / "first", tmp_path / "second"
    save_model_folder(tiny_model(vocab_size=801), copy.deepcopy(tokenizer), first)
    loaded = AutoTokenizer.from_pretrained(first)
    (first / SENTENCEPIECE_FILE).unlink()
    save_model_folder(tiny_model(vocab_size=801), loaded, second)
    assert (second / SENTENCEPIECE_FILE).read_bytes() == tokenizer.sentencepiece_model
    assert loaded(ODD)["input_ids"] == tokenizer(ODD)["input_ids"]
    config = json.loads((second / "tokenizer_config.json").read_text())
    assert "vocab_file" not in config
    bpe = train_tokenizer(TEXTS[:40], 300)
    save_model_folder(tiny_model(), bpe, second)
    assert not (second / SENTENCEPIECE_FILE).exists(), "of another tokenizer"


def test_tokenizer_loads_without_this_package(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "saved")
    texts = ["Tom  schläft. ", "", *NAMES]
    arguments = ["tokenizers", json.dumps(texts), str(tmp_path / "saved")]
    process = Forked([WITHOUT_PACKAGE, *arguments])
    ids, decoded, special, inputs = json.loads(process.communicate(timeout=120)[0])
    assert ids == tokenizer(texts)["input_ids"]
    assert inputs == ["input_ids", "attention_mask"]
    assert decoded == tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert special == [800, None, 0, 1]


NO_NORMALIZATION = "`normalization` must be left out for sentencepiece, .* got 'nfkc'"
TOO_SMALL = "`vocab_size` must suit the text, got 264. SentencePiece: .*smaller than"
REFUSED = [
    (TEXTS, {"normalization": "nfkc"}, NO_NORMALIZATION),
    (TEXTS, {"vocab_size": 264}, TOO_SMALL),
    (["", ""], {}, "got 2 texts without a character"),
    ([], {}, "got 0 texts without a character"),
    (["a"], {}, "SentencePiece needs more text to train on"),
]


@pytest.mark.parametrize(("texts", "changes", "message"), REFUSED)
def test_train_tokenizer_refuses(texts, changes, message):
    options = {"vocab_size": 800, "model": "sentencepiece"} | changes
    with pytest.raises(ValueError, match=message) as refused:
        train_tokenizer(texts, **options)
    assert "\n" not in str(refused.value)


SIZES = [(TEXTS[:6], 999), (TEXTS, 803), (["".join(TEXTS) * 3], 400)]


@pytest.mark.parametrize(("texts", "size"), SIZES)
def test_number_of_pieces_is_a_multiple_of_8(texts, size):
    small = train_tokenizer(texts, size, model="sentencepiece")
    assert len(small) % 8 == 1 and 257 <= len(small) <= size // 8 * 8 + 1
    proto = small.sentencepiece_model
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
    assert len(processor) == len(small) - 1
    assert small(TEXTS[:9])["input_ids"] == ids_by_processor(processor, TEXTS[:9])


# --- What tokenizers are used for -----------------------------------------------------------------


BESIDE = ["“<ph0>” (<ph1>)", "a <ph0>b<ph1> c", "<ph2>", "<ph0><ph1> x", "die DNA-Probe"]


def test_added_tokens_are_found_beside_any_character(tokenizer):
    marked = copy.deepcopy(tokenizer)
    add_augmentation_tokens(marked, ["inline_terms", "placeholders"])
    add_language_tags(marked, [Direction("en", "de")])
    marked.add_tokens(["DNA"])

    def ids_of(text):
        return marked(text, add_special_tokens=False)["input_ids"]

    for text in BESIDE:
        ids = ids_of(text)
        assert marked.decode(ids) == text
        assert {*marked.convert_ids_to_tokens(ids)} & {*MASKS, "DNA"}
    words = tokenizer("A man", add_special_tokens=False)["input_ids"]
    german = TARGET_TAG.format("de")
    begin, end, tag = marked.convert_tokens_to_ids(["<term>", "</term>", german])
    for text in ("<term> A man </term>", "<term>A man</term>", " <term>\u00a0A  man</term>"):
        assert ids_of(text) == [begin, *words, end]
    assert ids_of(f"{german} A man") == [tag, *words]
    for text in ODD:
        assert marked(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_pieces_within_words_continue_them(tokenizer):
    pieces = tokenizer.convert_ids_to_tokens(sorted(word_continuations(tokenizer)))
    assert {"s", "t"} <= {*pieces}
    assert not any(piece.startswith("▁") for piece in pieces)


def test_pipeline_translates_with_alignments_and_terms(tokenizer):
    ids = special_token_ids(tokenizer)
    model = tiny_model(vocab_size=801, alignment_heads=[[0, 0]], **ids)
    model.generation_config.update(**ids)
    translate = TranslationPipeline(model, tokenizer, max_new_tokens=20, normalize=True)
    texts = ["Tom is 12\u00a0345 km away.", "Tom  is 12\u00a0345 km away. "]
    plain, spaced = translate(texts, return_alignments=True)
    assert "12\u00a0345" in plain["translation_text"]
    assert spaced["translation_text"] == plain["translation_text"]
    (forced,) = translate("Tom is away.", constraints=["Haus"])
    assert "Haus" in forced["translation_text"]


def test_other_tokenizers_change_into_one_of_sentencepiece(tokenizer, tiny_tokenizer):
    old = tiny_model()
    new = replace_vocabulary(old, tiny_tokenizer, tokenizer)
    assert new.config.decoder_start_token_id == 800 and new.config.bos_token_id is None
    table, former = new.get_input_embeddings().weight, old.get_input_embeddings().weight
    (index,) = tokenizer("Tom", add_special_tokens=False)["input_ids"]
    pieces = tiny_tokenizer("Tom", add_special_tokens=False)["input_ids"]
    assert table[index].allclose(former[pieces].mean(dim=0))
    assert table[0].equal(former[2])


def test_other_uses_are_refused_in_one_line_or_change_nothing(tokenizer):
    assert with_normalization(tokenizer) is tokenizer
    message = "`init_vocabulary` extend needs a BPE tokenizer"
    with pytest.raises(ValueError, match=message):
        extend_tokenizer(tokenizer, TEXTS, 900)


def test_to_marian_writes_a_tokenizer_of_transformers(tokenizer, tmp_path):
    """Padding is the last entry already, so no tokenizer is built for it."""
    model = tiny_model(vocab_size=len(tokenizer), **special_token_ids(tokenizer))
    ours, marian = tmp_path / "ours", tmp_path / "marian"
    WRITERS["marian"](save_model_folder(model, tokenizer, ours), marian, TEXTS[:2])
    words = json.loads((marian / "tokenizer_config.json").read_text())
    assert words["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert words["model_input_names"] == ["input_ids", "attention_mask"]
    written = AutoTokenizer.from_pretrained(marian)
    assert written(TEXTS[:9])["input_ids"] == tokenizer(TEXTS[:9])["input_ids"]
