"""Conversion to MarianMTModel, the command, and comparisons that end with one line."""

import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel
from transformers.models.marian.modeling_marian import MarianDecoder

from tests.marian_files import MARIAN_SENTENCES, MARIAN_SIZES, build_marian_tokenizer, marian_model
from tests.sweeps import rare
from tests.tiny import tiny_model
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine import engine
from vanilla_transformer.extensions.conversion import READERS, WRITERS, onnx
from vanilla_transformer.extensions.conversion.marian import model_to_marian, start_from_zero
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerDecoder


@pytest.fixture(scope="module")
def marian_tokenizer(tmp_path_factory):
    return build_marian_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def random_inputs(vocab_size, source_length, target_length):
    """Return inputs of three pairs of sentences."""
    source = torch.randint(3, vocab_size, (3, source_length))
    target = torch.randint(3, vocab_size, (3, target_length))
    inputs = {"input_ids": source, "attention_mask": torch.ones_like(source)}
    return inputs | {"decoder_input_ids": target}


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("bias", [False, True])
def test_model_to_marian_has_our_logits(layout, bias):
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=31,
        sinusoid_layout=layout,
        attention_bias=bias,
        lm_head_bias=bias,
        layer_norm_eps=1e-5,
        **MARIAN_SIZES,
    )
    original = VanillaTransformerForConditionalGeneration(config).eval()
    for name, parameter in original.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
    converted = model_to_marian(original).double()
    original = original.double()
    inputs = random_inputs(31, 9, 7)
    logits = converted(**inputs).logits
    expected = original(**inputs).logits
    torch.testing.assert_close(logits, expected, atol=1e-12, rtol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("d_model", [16, rare(512)])
def test_model_to_marian_has_our_logits_to_the_bit(d_model):
    """With Marian's positions and epsilon nothing is reordered, and a start token that is zero, as
    untrained padding, is subtracted from nothing.
    """
    torch.manual_seed(0)
    fields = MARIAN_SIZES | {"sinusoid_layout": "halves", "layer_norm_eps": 1e-5}
    fields |= {"decoder_start_token_id": 0, "d_model": d_model}
    config = VanillaTransformerConfig(vocab_size=311, **fields)
    original = VanillaTransformerForConditionalGeneration(config).eval()
    converted = model_to_marian(original)
    start_from_zero(converted)
    inputs = random_inputs(311, 40, 30)
    inputs["decoder_input_ids"][:, 0] = 0
    assert torch.equal(converted(**inputs).logits, original(**inputs).logits)


def test_to_marian_writes_no_custom_code(tiny_model, tiny_tokenizer, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "marian"
    save_model_folder(tiny_model, tiny_tokenizer, ours)
    comparison = WRITERS["marian"](ours, theirs, MARIAN_SENTENCES)
    assert comparison.num_identical == 3
    assert comparison.max_logit_difference < 1e-2
    assert not list((tmp_path / "marian").glob("*.py"))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "marian")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "marian")
    assert type(model) is MarianMTModel
    assert type(tokenizer).__module__.startswith("transformers.")
    for text in (MARIAN_SENTENCES[0], "Öl kostet 3 €."):
        ids = tokenizer(text)["input_ids"]
        assert ids == tiny_tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.parametrize("model", ["bpe", rare("wordpiece"), rare("unigram")])
def test_to_marian_adds_padding_and_starts_from_zero(model, tmp_path):
    """Padding is the last token, for CTranslate2 drops the last id, and its decoder starts with a
    zero vector; transformers 4 reads old words.
    """
    train = VanillaTransformerTokenizer.train_from_iterator
    tokenizer = train(MARIAN_SENTENCES, 300, model=model)
    tokenizer.add_special_tokens({"extra_special_tokens": ["<2de>"]})
    last = len(tokenizer) + 2  # after two ids without a token
    ours = tiny_model(vocab_size=last, init_std=0.3)
    folder = save_model_folder(ours, tokenizer, tmp_path / "ours")
    theirs = tmp_path / "marian"
    comparison = WRITERS["marian"](folder, theirs, MARIAN_SENTENCES)
    assert comparison.num_identical == comparison.num_sentences
    assert comparison.max_logit_difference < 1e-2
    words = json.loads((theirs / "tokenizer_config.json").read_text())
    limits = json.loads((theirs / "generation_config.json").read_text())
    assert words["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert words["additional_special_tokens"] == ["<2de>"]
    assert "extra_special_tokens" not in words
    assert words["model_input_names"] == ["input_ids", "attention_mask"]
    assert "max_new_tokens" not in limits
    assert limits["max_length"] == 512
    marian = AutoModelForSeq2SeqLM.from_pretrained(theirs).eval()
    plain = AutoTokenizer.from_pretrained(theirs)
    assert marian.config.pad_token_id == last
    assert marian.generation_config.pad_token_id == last
    assert plain.pad_token_id == last
    assert len(plain) == marian.config.vocab_size == last + 1
    assert plain.convert_ids_to_tokens(last) == "<pad>"
    start = marian.config.decoder_start_token_id
    assert not marian.get_input_embeddings().weight[[start, last]].any()
    sentences = [*MARIAN_SENTENCES, "<2de> </s> <unused> <pad> 3 €"]
    sources = tokenizer(sentences)["input_ids"]
    assert plain(sentences)["input_ids"] == sources
    for ids in map(torch.tensor, sources):
        previous = torch.cat([torch.ones(1, dtype=int), ids])
        inputs = {"input_ids": ids[None], "decoder_input_ids": previous[None]}
        expected = ours(**inputs).logits[..., :last].log_softmax(-1)
        scores = marian(**inputs).logits[..., :last].log_softmax(-1)
        # Marian's epsilon
        torch.testing.assert_close(scores, expected, atol=1e-3, rtol=1e-3)
    if model == "bpe":
        folders = {"back": READERS["marian"], "again": WRITERS["marian"]}
        for name, convert in folders.items():
            comparison = convert(theirs, tmp_path / name, MARIAN_SENTENCES)
            assert comparison.num_identical == comparison.num_sentences
            theirs = tmp_path / name
        again = AutoTokenizer.from_pretrained(theirs)
        assert again(sentences)["input_ids"] == sources


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"normalize_before": True}, "normalize_before"),
        ({"position_embedding_type": "learned"}, "position_embedding_type"),
        ({"position_embedding_type": "none"}, "position_embedding_type"),
        ({"attention_key_dim": 4}, "attention_key_dim"),
        ({"source_eos": False}, "source_eos"),
    ],
)
def test_to_marian_names_the_field_that_forbids_it(changes, field, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model(**changes), tiny_tokenizer, tmp_path / "ours")
    message = f"MarianMTModel cannot represent this model: .*`{field}`"
    with pytest.raises(ValueError, match=message):
        WRITERS["marian"](folder, tmp_path / "marian", MARIAN_SENTENCES)
    assert not (tmp_path / "marian").exists()


def test_from_marian_refuses_another_model_type(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    message = "must be a model of type 'marian', got type 'vanilla_transformer'"
    with pytest.raises(ValueError, match=message):
        READERS["marian"](folder, tmp_path / "out", MARIAN_SENTENCES)


def test_to_marian_leaves_no_file_on_a_full_disk(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")

    def fail(self, path):
        (path / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MarianMTModel, "save_pretrained", fail)
    with pytest.raises(OSError, match="No space left"):
        WRITERS["marian"](folder, tmp_path / "marian", MARIAN_SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


def test_marian_refuses_sentences_beyond_its_positions(
    marian_tokenizer, tiny_model, tiny_tokenizer, tmp_path
):
    opus, ours = tmp_path / "opus", tmp_path / "ours"
    save_model_folder(marian_model(len(marian_tokenizer)), marian_tokenizer, opus)
    save_model_folder(tiny_model, tiny_tokenizer, ours)
    message = r"must have at most \d+ tokens, .* in sentence 2. Leave it out of --sen"
    for convert, source in ((READERS["marian"], opus), (WRITERS["marian"], ours)):
        with pytest.raises(ValueError, match=message):
            convert(source, tmp_path / "out", ["dog", "dog " * 2000])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["marian", "onnx"])
def test_conversion_that_is_wrong_on_both_sides_is_refused(
    form, tiny_tokenizer, tmp_path, monkeypatch
):
    """The decoders of both sides negate their states, which the engine, that has its own decoder,
    does not.
    """
    folder = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "ours")
    for decoder in (VanillaTransformerDecoder, MarianDecoder):

        def wrong(self, *args, right=decoder.forward, **kwargs):
            outputs = right(self, *args, **kwargs)
            outputs.last_hidden_state = -outputs.last_hidden_state
            return outputs

        monkeypatch.setattr(decoder, "forward", wrong)
    # Exporting takes many seconds, so the wrong model stands for its graphs.
    monkeypatch.setattr(onnx, "export_graphs", lambda model: model)
    monkeypatch.setattr(onnx, "run_by_graphs", lambda model, _: tiny_model())
    # Or the engine would see other methods, and leave the model to `generate()`.
    monkeypatch.setattr(engine, "is_supported", lambda model: True)
    message = "The engine of this package must translate as .*: 0 of 2 outputs identical"
    sentences = ["A man is sleeping.", "Two dogs run."]
    with pytest.raises(ValueError, match=message):
        WRITERS[form](folder, tmp_path / "out", sentences)
    assert not (tmp_path / "out").exists()


def test_convert_prints_the_comparison(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours"))
    (tmp_path / "text").write_text("\n".join(MARIAN_SENTENCES))
    command = ["convert", folder, str(tmp_path / "marian"), "--target_format", "marian"]
    assert main([*command, "--sentences", str(tmp_path / "text")]) == 0
    printed = capsys.readouterr().out
    assert "3 of 3 outputs identical, chrF between both 100.0" in printed
    assert ", largest logit difference" in printed
    assert main(command) == 2
    assert "is not empty" in capsys.readouterr().err
    for flags, said in (
        ([], "either --source_format or --target_format, got 0"),
        (["--target_format", "word"], "must be one of marian"),
    ):
        assert main(["convert", folder, str(tmp_path / "out"), *flags]) == 2
        assert said in capsys.readouterr().err
