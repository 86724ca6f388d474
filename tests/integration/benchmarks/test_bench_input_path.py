"""Tests of `bench_input_path` at a small size."""

import torch

from benchmarks import bench_input_path
from vanilla_transformer.data.tokenized_corpus import EncodedPair


def test_bench_input_path_prints_a_row_for_each_way(capsys):
    threads = torch.get_num_threads()
    bench_input_path.main(["--pairs", "400", "--max_tokens", "500", "--updates", "3", "--milliseconds", "0"])
    torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert all(f"\n| {name} | " in said for name in ("padded by sentence", "read and padded at once", "0", "1", "2"))


def test_bench_input_path_pads_the_same_batches_both_ways(tmp_path):
    options = bench_input_path.BenchmarkArguments(pairs=300, max_tokens=500, updates=4)
    corpus = bench_input_path.write_corpus(tmp_path / "encoded.arrow", options)
    for batch in bench_input_path.plan(corpus, options):
        pairs: list[EncodedPair] = [corpus.pairs[number] for number in batch.pairs.tolist()]
        expected = bench_input_path.pad_by_sentence(pairs)
        found = corpus.pairs.table.pad(batch.rows, 0).values()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
