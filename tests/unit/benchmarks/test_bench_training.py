"""The vocabulary of `bench_training`."""

from benchmarks.bench_training import fill_vocabulary
from tests.tiny import TINY_SENTENCES, tiny_tokenizer


def test_fill_vocabulary_adds_entries_that_no_text_has(tmp_path):
    tokenizer = tiny_tokenizer()
    fill_vocabulary(tokenizer, 32_000).save_pretrained(tmp_path)
    filled = type(tokenizer).from_pretrained(tmp_path)
    assert len(filled) == 32_000 and len(filled.added_tokens_decoder) == len(tokenizer.added_tokens_decoder)
    texts = [*TINY_SENTENCES, "filler500 </s>"]
    assert filled(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert filled.special_tokens_map == tokenizer.special_tokens_map
