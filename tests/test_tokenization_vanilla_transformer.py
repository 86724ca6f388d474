"""Text comes back from the tokenizer as it went in, with this package or without; others fit the model too."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, processors
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
    paper_generation_config,
)
from vanilla_transformer.tokenization_vanilla_transformer import encode_sentences

TEXTS = ["A man is sleeping.", "Two dogs run.", "Ein Mann schläft.", "Zwei Hunde laufen."] * 3
# Every Unicode text, with spaces, breaks and our own special tokens more often than chance has them.
any_text = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from([" ", "  ", "\n", "\u3000", "</s>", "<s>", "<pad>", "a", "Mann", "é", "日本", "🙂", "\x00", "."])
).map("".join)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(saved):
    return AutoTokenizer.from_pretrained(saved)


# --- Ids ------------------------------------------------------------------------------------------------------------


def test_special_tokens_have_the_ids_that_the_configuration_expects(tiny_tokenizer):
    config = VanillaTransformerConfig()
    assert tiny_tokenizer.pad_token_id == config.pad_token_id
    assert tiny_tokenizer.bos_token_id == config.bos_token_id == config.decoder_start_token_id
    assert tiny_tokenizer.eos_token_id == config.eos_token_id
    assert tiny_tokenizer.unk_token is None


@given(text=any_text)
@example(text="")
@example(text="</s>")
def test_source_and_target_end_with_the_only_eos(tiny_tokenizer, text):
    encoded = tiny_tokenizer(text, text_target=text)
    eos = tiny_tokenizer.eos_token_id
    assert encoded["input_ids"] == encoded["labels"]
    assert encoded["input_ids"].count(eos) == 1
    assert encoded["input_ids"][-1] == eos
    assert not {tiny_tokenizer.pad_token_id, tiny_tokenizer.bos_token_id} & set(encoded["input_ids"])


def test_a_word_has_the_same_ids_at_the_start_of_a_sentence_and_within_it(tiny_tokenizer):
    first, within = tiny_tokenizer("green")["input_ids"], tiny_tokenizer("the green")["input_ids"]
    assert within[-len(first) :] == first


def test_the_vocabulary_is_joint_and_as_large_as_asked(tiny_tokenizer):
    assert len(tiny_tokenizer) == 300
    for word in ("man", "Mann"):
        assert len(tiny_tokenizer(word)["input_ids"]) - 1 < len(word)


# --- There and back -------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(text=any_text)
@example(text=" ")
@example(text="  a  ")
@example(text="a , b . c n't 's")
@example(text="x</s>y <s> <pad>")
def test_any_text_comes_back_as_it_went_in(tiny_tokenizer, text):
    assert tiny_tokenizer.decode(tiny_tokenizer(text)["input_ids"], skip_special_tokens=True) == text


@given(texts=st.lists(any_text, min_size=1, max_size=5))
def test_a_padded_batch_of_texts_comes_back_as_it_went_in(tiny_tokenizer, texts):
    ids = tiny_tokenizer(texts, padding="longest", return_tensors="pt")["input_ids"]
    assert tiny_tokenizer.batch_decode(ids, skip_special_tokens=True) == texts


@given(text=any_text)
def test_a_loaded_tokenizer_does_what_the_saved_one_did(tiny_tokenizer, loaded, text):
    assert type(loaded) is VanillaTransformerTokenizer
    ids = loaded(text)["input_ids"]
    assert ids == tiny_tokenizer(text)["input_ids"]
    assert loaded.decode(ids, skip_special_tokens=True) == text


WITHOUT_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None  # importing it is an error now
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
texts = json.loads(sys.argv[2])
ids = tokenizer(texts)["input_ids"]
special = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id]
print(json.dumps([ids, tokenizer.batch_decode(ids, skip_special_tokens=True), special, tokenizer.model_input_names]))
"""


@pytest.mark.parametrize("beside_a_model", [False, True])
def test_it_loads_in_a_process_that_has_not_this_package(tiny_tokenizer, tiny_config, tmp_path, beside_a_model):
    texts = ["Ein Mann  schläft. ", "", "x</s>y\n<pad>", " 日本🙂", "don't , do ."]
    tiny_tokenizer.save_pretrained(tmp_path)
    if beside_a_model:
        tiny_config.save_pretrained(tmp_path)
    command = [sys.executable, "-I", "-c", WITHOUT_PACKAGE, str(tmp_path), json.dumps(texts)]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    ids, decoded, special, inputs = json.loads(output)
    assert ids == tiny_tokenizer(texts)["input_ids"]
    assert decoded == texts
    assert special == [0, 1, 2]
    assert inputs == ["input_ids", "attention_mask"]


# --- Training -------------------------------------------------------------------------------------------------------


def test_training_twice_gives_the_same_vocabulary():
    first, second = (VanillaTransformerTokenizer.train_from_iterator(iter(TEXTS), vocab_size=290) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_training_reads_any_iterable_once():
    read = []
    tokenizer = VanillaTransformerTokenizer.train_from_iterator((read.append(text) or text for text in TEXTS), 290)
    assert read == TEXTS
    assert len(tokenizer) == 290


def test_pairs_seen_too_rarely_are_not_merged():
    assert len(VanillaTransformerTokenizer.train_from_iterator(TEXTS, 300, min_frequency=1000)) == 259


def test_a_vocabulary_without_room_for_the_bytes_is_refused():
    assert len(VanillaTransformerTokenizer.train_from_iterator(TEXTS, vocab_size=259)) == 259
    with pytest.raises(ValueError, match="`vocab_size` must be at least 259 .*got 258"):
        VanillaTransformerTokenizer.train_from_iterator(TEXTS, vocab_size=258)


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_training_on_nothing_is_refused(texts):
    with pytest.raises(ValueError, match=f"got {len(texts)} texts without a character"):
        VanillaTransformerTokenizer.train_from_iterator(texts, vocab_size=300)


def test_a_string_is_not_taken_for_a_list_of_texts():
    with pytest.raises(ValueError, match="got the one string 'A man'"):
        VanillaTransformerTokenizer.train_from_iterator("A man", vocab_size=300)


# --- As in transformers ---------------------------------------------------------------------------------------------


def test_padding_truncation_and_tensors_are_those_of_the_library(tiny_tokenizer):
    batch = tiny_tokenizer(["Ein Mann schläft.", "Ein"], padding="longest", return_tensors="pt")
    lengths = [len(tiny_tokenizer(text)["input_ids"]) for text in ("Ein Mann schläft.", "Ein")]
    assert batch["input_ids"].shape == (2, max(lengths))
    assert batch["attention_mask"].sum(dim=1).tolist() == lengths
    assert (batch["input_ids"][1, lengths[1] :] == tiny_tokenizer.pad_token_id).all()
    cut = tiny_tokenizer("Ein Mann schläft.", truncation=True, max_length=3)["input_ids"]
    assert cut == [*tiny_tokenizer("Ein Mann schläft.")["input_ids"][:2], tiny_tokenizer.eos_token_id]


def test_added_tokens_fit_a_model_resized_for_them(saved, tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    assert tokenizer.add_tokens(["<2de>"]) == 1
    ids = tokenizer("<2de> Ein Mann", return_tensors="pt")["input_ids"]
    assert 300 in ids
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        tiny_model(input_ids=ids, labels=ids)
    tiny_model.resize_token_embeddings(len(tokenizer))
    assert tiny_model(input_ids=ids, labels=ids).logits.shape == (*ids.shape, 301)
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == "<2de> Ein Mann"


# --- Other tokenizers -----------------------------------------------------------------------------------------------


def byte_level_tokenizer(**special):
    """Like GPT-2's: bytes, one `<|endoftext|>` for everything, no padding, and no EOS put behind a sentence."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", **special}
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **special)


def with_template(tokenizer, template):
    eos = (tokenizer.eos_token, tokenizer.eos_token_id)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[eos])
    return tokenizer


@pytest.mark.parametrize(
    "template", ["$A", "$A <|endoftext|>", "<|endoftext|> $A", "<|endoftext|> $A <|endoftext|>"], ids=str
)
def test_encoded_sentences_have_one_eos_whatever_the_tokenizer_does(template):
    tokenizer = byte_level_tokenizer()
    words = [tokenizer(text)["input_ids"] for text in ("Ein Mann", "")]
    tokenizer = with_template(tokenizer, template)
    sentences = encode_sentences(tokenizer, ["Ein Mann", "", "Ein<|endoftext|> Mann"])
    eos = tokenizer.eos_token_id
    assert sentences == [[*words[0], eos], [*words[1], eos], [*words[0], eos]]


def test_encoded_sentences_of_our_own_tokenizer_are_what_it_gives(tiny_tokenizer):
    texts = ["Ein Mann", "", "a</s>b"]
    assert encode_sentences(tiny_tokenizer, texts) == tiny_tokenizer(texts)["input_ids"]
    assert encode_sentences(tiny_tokenizer, []) == []


def test_a_tokenizer_without_eos_is_refused():
    with pytest.raises(ValueError, match="must have an `eos_token`, got none from"):
        encode_sentences(byte_level_tokenizer(eos_token=None), ["Ein"])


def test_a_tokenizer_like_gpt2_s_with_a_pad_token_added_afterwards_learns_to_translate(tmp_path):
    pairs = dict(zip(TEXTS[:2], TEXTS[2:4], strict=True)) | {"Dogs run.": "Hunde laufen.", "A man.": "Ein Mann."}
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    eos = tokenizer.eos_token_id
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    config = VanillaTransformerConfig(
        vocab_size=len(tokenizer) - 1, **sizes, encoder_attention_heads=2, decoder_attention_heads=2, dropout=0.0
    )
    model = VanillaTransformerForConditionalGeneration(config)
    model.resize_token_embeddings(len(tokenizer))
    model.config.pad_token_id, model.config.eos_token_id = tokenizer.pad_token_id, eos
    model.config.bos_token_id = model.config.decoder_start_token_id = eos
    model.generation_config = paper_generation_config(tokenizer.pad_token_id, eos, eos)

    source, target = (
        tokenizer.pad({"input_ids": encode_sentences(tokenizer, list(texts))}, return_tensors="pt")
        for texts in (pairs, pairs.values())
    )
    labels = target["input_ids"].masked_fill(target["attention_mask"] == 0, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(80):
        model(**source, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for translate in (
        pipeline("translation", model=model, tokenizer=tokenizer),
        pipeline("translation", model=str(tmp_path)),
    ):
        assert [answer["translation_text"] for answer in translate(list(pairs))] == list(pairs.values())
