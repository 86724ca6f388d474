"""Integration tests of `bench_kept_text`: the sentences that lose text, and those that constraints mend."""

from benchmarks import bench_kept_text
from tests.tiny import TINY_SENTENCES, tiny_model
from vanilla_transformer.file_utils import save_model_folder


def test_bench_kept_text_counts_the_sentences_that_constraints_mend(tiny_tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench_kept_text, "KINDS", {"number": ("2,5",)})
    save_model_folder(tiny_model(), tiny_tokenizer, tmp_path)
    (tmp_path / "text").write_text("\n".join(TINY_SENTENCES[:1]))
    bench_kept_text.main(["--folder", str(tmp_path), "--sentences", str(tmp_path / "text")])
    assert capsys.readouterr().out.splitlines()[2:] == ["| number | 1 | 1 | 1 | 0 |"]
