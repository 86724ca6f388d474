"""Processes that we start import nothing from the current folder, such as `torch.py` beside a
downloaded model.
"""

import pytest

from tests.sweeps import rare
from tests.tiny_engines import engine_of
from vanilla_transformer.data.readers import corpora
from vanilla_transformer.decoding.engine import compiled_steps
from vanilla_transformer.decoding.open_pipeline import open_pipeline
from vanilla_transformer.extensions.scale_out import engine_workers
from vanilla_transformer.loading.model_folders import save_model_folder


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Change to a folder with modules that leave a file; return the path of the file."""
    folder, mark = tmp_path / "downloads", tmp_path / "mark"
    folder.mkdir()
    names = ("vanilla_transformer", "torch", "mtdata", "multiprocessing", "pickle", "json")
    for name in names:
        code = f"open({str(mark)!r}, 'a').write({name!r} + ' ')\nraise SystemExit(1)\n"
        (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    return mark


def run_compile_worker(folder):
    """Start the worker, which ends after its imports if nothing is given to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.save", lambda *_: None)
        run_whole_compile_worker(folder)


def run_whole_compile_worker(folder):
    steps = engine_of(1, compile="auto").steps
    names = ("name", "no kind")
    compiled_steps._start_worker(steps.step, steps._buffers, 1, *names).wait()


def run_mtdata(folder):
    refused = pytest.raises((OSError, ValueError), match="Cannot download mtdata:")
    with pytest.MonkeyPatch.context() as patch, refused:
        patch.setattr("importlib.metadata.version", lambda name: "1")
        corpora._download_mtdata(folder, "no corpus", "en", "de")


def run_workers(folder):
    with open_pipeline(folder, 2) as translate:
        assert len(translate(["a man", "a dog"], num_beams=1)) == 2


STARTS = [run_compile_worker, rare(run_whole_compile_worker)]
STARTS += [rare(run_mtdata), rare(run_workers)]


@pytest.mark.parametrize("start", STARTS)
def test_processes_import_nothing_of_the_current_folder(
    start, planted, tiny_model, tiny_tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(engine_workers, "usable_cores", lambda: 2)
    start(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))
    assert not planted.exists()
