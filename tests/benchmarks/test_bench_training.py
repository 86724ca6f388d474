"""`bench_training` measures training loops, and compares them with the best one of others."""

import json

from benchmarks import bench_training
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.data.tokenizer_training import train_tokenizer

MEASURED = {"tokens_per_second": 2.0, "tokens_per_cpu_second": 1.0, "updates": 1}
MEASURED |= {"target_tokens_an_update": 2.0, "target_padding": 0.0, "peak_mib": 4.0}
MEASURED |= {"peak_over_resident_mib": 1.0, "cores_busy_with_others": 0.0}
MEASURED |= {"parameters": 9}
RATIOS = ("ratio to the best other", "ratio to the leanest other")


def test_ratios_are_relative_to_the_best_other():
    peer = MEASURED | {"tokens_per_second": 1.0, "peak_mib": 8.0}
    peer["tokens_per_cpu_second"] = 0.25
    worse = peer | {"tokens_per_second": 0.5, "peak_mib": 16.0}
    results = {"ours, bf16": [MEASURED], "JoeyNMT, float32": [worse], "eole, float32": [peer]}
    options = bench_training.TrainingArguments(passive_wait=True)
    ours, joeynmt, _ = bench_training.rows(results, options)
    assert [ours[name] for name in RATIOS] == [2.0, 0.5]
    assert [joeynmt[name] for name in RATIOS] == [0.5, 2.0]
    assert ours["CPU ratio to the best other"] == 4.0
    options.passive_wait = False  # CPU seconds count work only while waiting threads sleep
    assert "CPU ratio to the best other" not in bench_training.rows(results, options)[0]


def test_vocabulary_is_filled_with_unused_entries():
    tokenizer = train_tokenizer(["a man is sleeping", "two dogs run"], vocab_size=280)
    filled = bench_training.fill_vocabulary(tokenizer, 400)
    assert len(filled) == 400
    assert filled("a man runs")["input_ids"] == tokenizer("a man runs")["input_ids"]


def test_our_loop_and_two_trainers_are_measured(tmp_path, capsys):
    sizes = "--d_model 32 --heads 2 --layers 1 --ffn_dim 512 --vocab_size 600"
    limits = "--seconds 0 --updates 3 --repeats 1 --sides 0 3 6"
    corpus = write_demo_corpus(tmp_path / "corpus", train=1000, validation=1, test=1)
    words = [str(corpus["train.en"]), str(corpus["train.de"])]
    words += [*sizes.split(), *limits.split(), "--output_dir", str(tmp_path)]
    bench_training.main(words)
    rows = json.loads((tmp_path / "training.json").read_text())["rows"]
    systems = [*bench_training.PEERS]
    assert [row["system"] for row in rows] == [systems[0], systems[3], systems[6]]
    for row in rows:
        assert row["target tokens/s"][0] > 0
        assert row["peak memory, MiB"][0] > row["added by training, MiB"][0] > 0
    for row in rows[:2]:
        assert row["padding, %"] < 10  # batches of like length
    assert capsys.readouterr().out == (tmp_path / "training.md").read_text()
