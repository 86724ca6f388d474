"""`--engine ray` with a stand-in for Ray, and without it; how many workers fit on the machines of a
cluster.
"""

import pickle
import re
import sys
from types import SimpleNamespace

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.decoding.corpus_shards import CorpusShards
from vanilla_transformer.errors import LostProcessError, UserError
from vanilla_transformer.extensions.distillation import teacher
from vanilla_transformer.extensions.distillation.candidates import DistillationText, Entry
from vanilla_transformer.extensions.distillation.distillation_arguments import DistillationArguments
from vanilla_transformer.extensions.scale_out.ray_shards import count_workers, work_by_ray
from vanilla_transformer.text.languages import NO_DIRECTION
from vanilla_transformer.text.translation_warnings import WarningLimits

LINES = [f"a dog {number}" for number in range(40)]


class RayError(Exception):
    """Any error of Ray."""


class TaskError(RayError):
    """An error of a function that an actor calls."""

    def __init__(self, cause):
        super().__init__(f"a traceback of {cause}")
        self.cause = cause


class ActorError(RayError):
    """The loss of an actor that was started too often."""


class Handle:
    """Stand for an actor: its calls run when somebody waits for them."""

    def __init__(self, ray, actor):
        self.actor, self.is_alive = actor, True
        self.work = SimpleNamespace(remote=lambda shard: ray.call(self, pickle.dumps(shard)))


class StandIn:
    """Stand for the module `ray`, in one process, with two machines of one CPU."""

    def __init__(self):
        names = {"RayError": RayError, "RayActorError": ActorError}
        self.exceptions = SimpleNamespace(**names)
        self.actors, self.calls, self.waiting = [], {}, []
        self.most_waiting = 0

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 2.0}

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1.0}}] * 2

    def remote(self, **options):
        assert options["max_restarts"] == -1

        def declare(kind):
            def start(*arguments):
                copies = pickle.loads(pickle.dumps(arguments))
                self.actors.append(Handle(self, kind(*copies)))
                return self.actors[-1]

            return SimpleNamespace(remote=start)

        return declare

    def call(self, handle, content):
        task = len(self.calls)
        self.calls[task] = (handle, content)
        self.waiting.append(task)
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        return task

    def wait(self, tasks):
        last = tasks[-1]  # the order in which they were sent is not that of their ends
        self.waiting.remove(last)
        return [last], [task for task in tasks if task != last]

    def get(self, task):
        handle, content = self.calls[task]
        assert handle.is_alive
        try:
            return handle.actor.work(pickle.loads(content))
        except ActorError:
            raise
        except Exception as error:
            raise TaskError(error) from error

    def kill(self, handle):
        handle.is_alive = False


@pytest.fixture
def ray(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


def shout():
    """Return the work of an actor."""
    return work_loudly


def work_loudly(shard):
    return [line.upper() for line in shard.lines]


def refuse(error):
    raise error


def lose():
    return lambda shard: refuse(ActorError())


def mistake():
    return lambda shard: refuse(UserError("A constraint must have a word."))


def defect():
    return lambda shard: refuse(KeyError("x"))


@pytest.fixture
def store(tmp_path):
    shards = CorpusShards(tmp_path / "out.partial", {}, 2, len(LINES))
    shards.open(resume=False)
    return shards


def run(store, build=shout, lines=LINES, **options):
    store.complete(lines, lambda *shards: work_by_ray(*shards, build, **options))
    return "".join(store.results(len(lines)))


EXPECTED = "".join(f"{line.upper()}\n" for line in LINES)


def test_work_by_ray_reads_shards_as_results_leave(ray, store):
    ahead = []

    def lines():
        for number, line in enumerate(LINES):
            yield line
            ahead.append(number + 1 - store.finished_lines)

    store.complete(lines(), lambda *shards: work_by_ray(*shards, shout))
    assert "".join(store.results(len(LINES))) == EXPECTED
    assert ray.most_waiting == 4, "two shards of each actor are in the cluster"
    assert max(ahead) <= 2 * (4 + 1), "and the command holds one more"


def test_work_by_ray_starts_no_more_actors_than_shards(ray, store):
    assert run(store, lines=LINES[:2]) == "".join(f"{line.upper()}\n" for line in LINES[:2])
    assert len(ray.actors) == 1
    assert not ray.actors[0].is_alive


def test_actors_write_their_shards_where_they_see_the_folder(ray, store, monkeypatch):
    written, write = [], CorpusShards.write

    def note(self, shard, results):
        written.append(self is store)
        write(self, shard, results)

    monkeypatch.setattr(CorpusShards, "write", note)
    assert run(store) == EXPECTED
    assert written == [False] * 20, "the command itself writes nothing"


@pytest.mark.parametrize("other", ["missing", "of another run"])
def test_results_travel_from_machines_without_the_folder(ray, store, monkeypatch, other):
    real = store.identity()

    def identity(self):
        if self is not store and other == "missing":
            raise FileNotFoundError
        return real if self is store else (0, 0)

    written, write = [], CorpusShards.write

    def note(self, shard, results):
        written.append(self is store)
        write(self, shard, results)

    monkeypatch.setattr(CorpusShards, "identity", identity)
    monkeypatch.setattr(CorpusShards, "write", note)
    assert run(store) == EXPECTED
    assert written == [True] * 20


def test_work_by_ray_resumes(ray, store):
    work = work_by_ray(store.unfinished(LINES), store, shout)
    for _ in range(3):
        next(work)
    work.close()
    again = CorpusShards(store.folder, {}, 2, len(LINES))
    again.open(resume=True)
    assert again.finished_lines == 6
    assert run(again) == EXPECTED


LOST = "Lines 7 to 8 must leave their worker alive, but 4 were killed."


@pytest.mark.parametrize(
    ("build", "kind", "message"),
    [
        (lose, LostProcessError, LOST),
        (mistake, UserError, "^A constraint must have a word.$"),
        (defect, TaskError, "a traceback of 'x'"),
    ],
)
def test_work_by_ray_reports(ray, store, build, kind, message):
    with pytest.raises(kind, match=message):
        run(store, build)
    assert not any(actor.is_alive for actor in ray.actors)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "text.en").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "text.de").write_text("".join(f"{line.upper()}\n" for line in LINES))
    return tmp_path


SHORT = ["--max_new_tokens", "6", "--batch_size", "1"]
DOORS = {
    "translate": ["--input", "text.en", *SHORT],
    "score": ["--source", "text.en", "--target", "text.de", "--max_tokens", "99"],
    "back-translate": ["--input", "text.en", "--keep_warnings", *SHORT],
}


@pytest.mark.parametrize("command", DOORS)
def test_commands_write_by_ray_what_one_process_writes(ray, folder, files, monkeypatch, command):
    monkeypatch.chdir(files)
    monkeypatch.setattr("vanilla_transformer.cli.translate.BATCHES", 16)
    monkeypatch.setattr("vanilla_transformer.evaluation.pair_scores.WINDOW", 16)
    back_translation = "vanilla_transformer.extensions.distillation.back_translation"
    monkeypatch.setattr(f"{back_translation}.SHARD_LINES", 16)
    texts = []
    for name, flags in {"here": [], "cluster": ["--engine", "ray"]}.items():
        words = [command, str(folder), *DOORS[command], "--output", f"{name}.tsv"]
        assert main([*words, *flags]) == 0
        texts.append((files / f"{name}.tsv").read_text())
    assert texts[0] == texts[1] and len(texts[0].splitlines()) == 40
    assert len(ray.calls) == 3 and len(ray.actors) == 2


FOLDERS = {
    "translate": ["--input", "en", *SHORT],
    "score": ["--source", "en", "--target", "de", "--max_tokens", "99"],
    "back-translate": ["--input", "en", "--keep_warnings", *SHORT],
}


@pytest.mark.parametrize("command", FOLDERS)
def test_commands_read_a_folder_as_the_file_of_all_its_lines(
    ray, folder, files, monkeypatch, command
):
    monkeypatch.chdir(files)
    for language in ("en", "de"):
        lines = (files / f"text.{language}").read_text().splitlines(keepends=True)
        for name, part in {"a": lines[:17], "b/a": lines[17:18], "b/c": lines[18:]}.items():
            path = files / language / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(part))
        (files / language / ".hidden").write_text("This is no text.")
    words = [command, str(folder)]
    assert main([*words, *DOORS[command], "--output", "file.tsv"]) == 0
    assert main([*words, *FOLDERS[command], "--engine", "ray", "--output", "folder.tsv"]) == 0
    assert (files / "folder.tsv").read_text() == (files / "file.tsv").read_text()
    assert ray.calls


def test_distill_scores_by_ray_as_one_process(ray, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "SHARD_LINES", 4)
    entries = [Entry(0, line, None, [line.upper(), line[:5]]) for line in LINES[:8]]
    text = DistillationText("key", len(entries), lambda: iter(entries))
    results = []
    for engine in (None, "ray"):
        options = DistillationArguments(
            candidates="a", reverse_model=str(folder), drop_warnings=False, engine=engine
        )
        shards = teacher.open_shards(tmp_path / str(engine), options, text, {}, False)
        teacher.translate_text(shards, text, options, NO_DIRECTION, WarningLimits(), [])
        results.append([*shards.result_lines(len(entries))])
    assert results[0] == results[1] and len(results[0]) == 8
    assert len(ray.calls) == 2


def test_engine_ray_names_the_extra_to_install(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "text").write_text("A man is sleeping.\n")
    words = [
        "--input",
        str(tmp_path / "text"),
        "--output",
        str(tmp_path / "out"),
        "--engine",
        "ray",
    ]
    assert main(["translate", str(folder), *words]) == 2
    assert "pip install 'vanilla-transformer[ray]'" in capsys.readouterr().err
    assert not any(tmp_path.glob("out*"))


def test_count_workers_fills_machines_that_live():
    nodes = [
        {"Alive": alive, "Resources": {"CPU": cpus}}
        for alive, cpus in ((True, 7.0), (True, 2.0), (False, 64.0))
    ]
    assert [count_workers(nodes, threads) for threads in (1, 2, 3)] == [9, 4, 2]
    message = "A machine of the cluster must have 8 CPUs, but the largest one has 7."
    with pytest.raises(ValueError, match=re.escape(message)):
        count_workers(nodes, 8)
