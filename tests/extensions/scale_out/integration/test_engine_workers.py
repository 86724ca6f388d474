"""Worker pipelines: order, reports and errors, with threads for workers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.open_pipeline import open_pipeline
from vanilla_transformer.decoding.options import OptionError, TranslationOptions
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.extensions.scale_out import engine_workers
from vanilla_transformer.extensions.scale_out.engine_workers import WorkerPipeline
from vanilla_transformer.loading.model_folders import save_model_folder

TEXTS = ["A man is sleeping.", "", "a b\n\nc. d."]
TEXTS += [f"a {'dog ' * (index % 7)}" for index in range(150)]


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.fixture
def executors(monkeypatch):
    """Replace the processes of workers by threads, on a machine with four cores.

    Return what they were made of.
    """
    made = []

    def in_threads(workers, context, initializer, arguments):
        made.append((workers, arguments[1]))
        return ThreadPoolExecutor(1)  # since threads would share one pipeline

    monkeypatch.setattr(engine_workers, "ProcessPoolExecutor", in_threads)
    monkeypatch.setattr(engine_workers, "usable_cores", lambda: 4)
    monkeypatch.setattr(engine_workers.torch, "get_num_threads", lambda: 3)
    engine_workers._load.cache_clear()
    return made


@pytest.mark.parametrize("precision", [None, "float32"])
def test_worker_pipeline_translates_as_one_process_does(executors, folder, precision):
    expected = load_pipeline(folder, precision=precision)(TEXTS, num_beams=2)
    with open_pipeline(folder, 2, precision) as translate:
        assert isinstance(translate, WorkerPipeline)
        assert translate(TEXTS, num_beams=2) == expected
        assert [*translate(iter(TEXTS), num_beams=2, batch_size=1)] == expected
        best = translate(TEXTS[:3], num_beams=2, num_return_sequences=2)
    assert [answers[0] for answers in best] == expected[:3]
    assert executors == [(2, 2)]


FOLLOWED = {
    "samples": (TEXTS * 2, {"do_sample": True, "num_beams": 1, "seed": 3}),
    "scores": (TEXTS[:5], {"return_scores": True, "return_tokens": True, "num_beams": 2}),
    # A function that could not be sent to a process.
    "splitter": (TEXTS[:5], {"num_beams": 1, "sentence_splitter": lambda text: [text]}),
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_worker_pipeline_follows_options_as_one_process_does(executors, folder, kind):
    texts, options = FOLLOWED[kind]
    with open_pipeline(folder, 2) as workers, open_pipeline(folder) as translate:
        answers = workers(texts, **options)
        assert [*map(str, answers)] == [*map(str, translate(texts, **options))]


SHARES = [(3, 3, 1), (6, 6, 3), (64, 16, 16)]


@pytest.mark.parametrize(("cores", "most", "threads"), SHARES)
def test_workers_have_a_share_of_the_cores(executors, folder, monkeypatch, cores, most, threads):
    monkeypatch.setattr(engine_workers, "usable_cores", lambda: cores)
    monkeypatch.setattr(engine_workers.torch, "get_num_threads", lambda: most)
    with open_pipeline(folder, 2):
        assert executors == [(2, threads)]


def test_worker_pipeline_reports_all_sentences(executors, folder):
    reports = []
    with open_pipeline(folder, 2) as translate:
        sentences = [Sentence("a", "", [4, 2])] * 150
        translate.decode(sentences, TranslationOptions(num_beams=1), reports.append)
    assert sum(reports) == 150 and len(reports) == 3


def test_worker_pipeline_forwards_errors(executors, folder):
    with open_pipeline(folder, 2, "float32") as translate:
        with pytest.raises(ValueError, match="must do without `repetition_penalty`"):
            translate(TEXTS, repetition_penalty=1.2)
        with pytest.raises(ValueError, match="in order and unchanged"):
            sentences = ["A man. A dog."]
            translate(sentences, sentence_splitter=lambda text: text.split(". "))
        assert len(translate(TEXTS)) == len(TEXTS)


@pytest.mark.parametrize("further", ["ensemble", "rerank_reverse"])
def test_worker_pipeline_refuses_what_lacks_further_models(executors, folder, further):
    models = {further: [folder] if further == "ensemble" else folder}
    with open_pipeline(folder, 2, **models) as translate:
        assert translate.reranks is (further == "rerank_reverse")
        message = "`alternatives` are of one model without reranking"
        with pytest.raises(OptionError, match=message):
            translate(TEXTS[:1], alternatives=2)


def test_open_pipeline_refuses_workers_on_another_device(executors, folder, monkeypatch):
    def on_meta(name, **loading):
        translate = load_pipeline(name, **loading)
        translate.model.to("meta")
        return translate

    monkeypatch.setattr(engine_workers, "load_pipeline", on_meta)
    message = "translate on the CPU, but this process uses meta"
    with pytest.raises(ValueError, match=message), open_pipeline(folder, 2):
        pass
    assert executors == []


def test_commands_translate_with_workers(executors, folder, tmp_path, capsys):
    lines = [f"a {'dog ' * (index % 5)}" for index in range(5)]
    texts = "\n".join(lines) + "\n"
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text(texts)
    files = ["--source", f"{tmp_path}/a.en", "--target", f"{tmp_path}/a.de"]
    files += ["--output_file", f"{tmp_path}/out", "--overwrite"]
    outputs = []
    for workers in ([], ["--workers", "2"]):
        assert main(["translate", folder, *lines, "--num_beams", "1", *workers]) == 0
        assert main(["evaluate", folder, *files, *workers]) == 0
        outputs.append((capsys.readouterr().out, (tmp_path / "out").read_text()))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0].splitlines()) > 5
    assert executors == [(2, 2)] * 2
