"""The docs pages are true: their commands run from top to bottom, their Python runs, their recipes train."""

import gzip
import json
import re
import runpy
import shlex
from pathlib import Path
from xml.sax.saxutils import escape
from zipfile import ZipFile

import datasets
import pytest
import sacrebleu
import yaml
from accelerate.state import AcceleratorState

from tests.comet_files import REGRESSION, write_comet
from tests.docs_pages import ROOT, blocks, command_flags, command_lines, flags_of, run_in_shell, write_workspace
from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation
from vanilla_transformer.training import parser
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.utils.file_utils import save_model_folder

pytestmark = pytest.mark.usefixtures("short_translations")

PAGES = sorted((ROOT / "docs").glob("*.md"))
TASKS = ["train_on_your_own_data", "clean_a_corpus", "fine_tune", "distill", "many_languages", "scaling", "evaluate"]
TASKS += ["translate", "documents", "terms_and_markup", "scores", "alignments", "decoding", "publish", "convert"]
TASKS += ["serve", "long_sequences"]


def commands():
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                yield pytest.param(shlex.split(line), id=f"{page.stem}: {' '.join(line.split()[:4])}")


def recipes():
    for page in PAGES:
        if page.stem in ("publish", "change_the_architecture"):  # a card and rows; other tests run these pages
            continue
        for number, block in enumerate(blocks(page, "yaml")):
            yield pytest.param(block, id=f"{page.stem} {number}")


@pytest.mark.parametrize("words", commands())
def test_docs_commands_exist(words, monkeypatch):
    monkeypatch.setattr(parser, "use_user_module", lambda path: None)  # which stands on the page
    if "scripts/train.py" in words:
        recipe, *flags = words[words.index("scripts/train.py") + 1 :]
        parse_recipe([str(ROOT / recipe), *flags])
    elif words[0] == "sbatch":
        assert (ROOT / words[1]).is_file()
        parse_recipe([str(ROOT / words[2]), *words[3:]])
    elif words[0] == "python":
        runpy.run_path(str(ROOT / words[1]))["EXPERIMENT"].parse(words[2:])
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
    else:
        assert words[0] == "vanilla-transformer" and words[1] in COMMANDS
        if words[1] == "train":
            parse_recipe(words[2:])


@pytest.mark.parametrize("name", TASKS)
def test_docs_task_pages_begin_with_a_command(name):
    beginning = r"# .*\n\n(## .*\n\n)?```bash\n(vanilla-transformer|accelerate launch) "
    assert re.match(beginning, (ROOT / "docs" / f"{name}.md").read_text())


@pytest.mark.parametrize("text", recipes())
def test_docs_recipes_parse(text, tmp_path):
    recipe = yaml.safe_load(text)
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    files = [] if "corpora" in recipe else ["--train_source", "a.en", "--train_target", "a.de"]
    if "teacher" in recipe:
        tests = ["--test_source", "test.en", "--test_target", "test.de"]
        parse_distillation([str(path), *files, *tests, "--output_dir", "out"])
        return
    parse_recipe([str(path), *files, "--output_dir", "out"])


def test_docs_tables_name_recipe_keys():
    rows = [(page.stem, row) for page in PAGES for row in re.findall(r"^\|.*$", page.read_text(), re.MULTILINE)]
    named = [(page, name) for page, row in rows for name in re.findall(r"`(\w+): [^`]+`", row)]
    assert len(named) > 20
    assert not [(page, name) for page, name in named if name not in flags_of("train")]


def test_docs_commands_have_flags_that_exist():
    pages = [*PAGES, *(ROOT / name for name in ("README.md", "MIGRATION.md", "CONTRIBUTING.md", "AGENTS.md"))]
    flags = [(page.stem, *flag) for page in pages for line in command_lines(page) for flag in command_flags(line)]
    assert len(flags) > 250 and len({command for _, command, _ in flags}) > 15
    assert not [each for each in flags if each[1] not in COMMANDS or each[2] not in flags_of(each[1])]


def test_docs_decoder_only_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(ROOT / "docs" / "decoder_only_and_encoder_only.md", "python"):
        exec(block, names)
    AcceleratorState._reset_state(
        reset_partial_state=True
    )  # Accelerate keeps the first precision that a process requested
    assert capsys.readouterr().out.splitlines()[-1].startswith("Where is the ")


def test_docs_long_sequences_python_runs():
    names = {}
    for block in blocks(ROOT / "docs" / "long_sequences.md", "python"):
        exec(block, names)
    assert names["memory"].layers[0].keys.shape[1] > 10  # the earlier sentences of the document


def test_docs_decoding_python_runs(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "runs" / "mine")
    for block in blocks(ROOT / "docs" / "decoding.md", "python"):
        names = {}
        exec(block.replace("compile=True", "compile=False"), names)  # compiling takes minutes
        assert names["translate"]("A man is sleeping.")


def test_docs_document_command_and_python_translate_markup(tiny_model, tiny_tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "runs" / "mine")
    Path("page.html").write_text("<p>Two <b>dogs</b>.</p>\n")
    page = ROOT / "docs" / "documents.md"
    Path("project.sdlxliff").write_text("<xliff version='1.2'><trans-unit><source>Dogs.</source></trans-unit></xliff>")
    for command in blocks(page, "bash"):
        assert main(shlex.split(command)[1:]) == 0
    assert "<source>Dogs.</source><target state=" in Path("project.de.sdlxliff").read_text()
    translated = Path("page.de.html").read_text()
    assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>\n", translated, re.DOTALL) and "dogs" not in translated
    (block,) = blocks(page, "python")
    exec(block, {})
    assert capsys.readouterr().out.splitlines()[-1] == "<p>DR. <b>SMITH</b> SLEPT.</p>"


def test_docs_evaluate_commands_run(tiny_model, tiny_tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "runs" / "mine")
    for name, text in {"test.en": "A man.", "test.de": "Ein Mann.", "theirs.de": "Ein Hund."}.items():
        Path(name).write_text(f"{text}\n{text}\n")
    write_comet(tmp_path / "Unbabel" / "wmt22-comet-da", REGRESSION)
    page = ROOT / "docs" / "evaluate.md"
    for command in blocks(page, "bash"):
        assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out
    signatures = [line.split("  ")[1] for line in blocks(page, "text")[0].splitlines() if "  " in line]
    pinned = re.search(r"^sacrebleu==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    expected = [each.replace(f"version:{pinned}", f"version:{sacrebleu.__version__}") for each in signatures]
    assert len(expected) == 2 and all(signature in printed for signature in expected)
    assert "±: half of the 95 % confidence interval" in printed and ", p = " in printed


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    write_workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_docs_training_commands_run_from_top_to_bottom(workspace):
    page = ROOT / "docs" / "train_on_your_own_data.md"
    lines = "\n".join(blocks(page, "bash"))
    printed = run_in_shell(
        lines.replace("train small", "train recipes/small.yaml")
    )  # the workspace's, which ends soon
    table = re.search(r"\| in `output_dir`.*?\n\n", page.read_text(), re.DOTALL)[0]
    promised = set(re.findall(r"`([\w.]+)/?`", table)) - {"output_dir", "ema"}  # the moving average is optional
    assert promised <= {path.name for path in (workspace / "runs" / "mine").iterdir()}
    assert "Nothing has been written." in printed and "BLEU" in printed
    assert (workspace / "runs" / "mean" / "model.safetensors").exists()


def test_docs_training_from_python_runs(workspace):
    (block,), names = blocks(ROOT / "docs" / "train_on_your_own_data.md", "python"), {}
    exec(block, names)
    assert (names["folder"] / "model.safetensors").exists()
    logged = [json.loads(line) for line in (names["folder"] / "metrics.jsonl").read_text().splitlines()]
    assert {"bleu", "chrf", "validation_loss"} <= logged[-1].keys()


def _translation_unit(pair):
    source, target = map(escape, pair)
    return f"<tu><tuv xml:lang='en'><seg>{source}</seg></tuv><tuv xml:lang='de'><seg>{target}</seg></tuv></tu>"


def test_docs_recipe_of_several_corpora_trains_with_every_cleaning_rule(workspace):
    sources, targets = ((workspace / f"train.{end}").read_text() for end in ("en", "de"))
    pairs = list(zip(sources.splitlines(), targets.splitlines(), strict=True))
    rows = [{"translation": {"en": source, "de": target}} for source, target in pairs]
    for end, text in (("en", sources), ("de", targets)):
        with gzip.open(f"europarl.{end}.gz", "wt", encoding="utf-8") as file:
            file.write(text)
    Path("ours.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    Path("crawled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with gzip.open("memory.tmx.gz", "wt", encoding="utf-8") as file:
        file.write(f"<tmx version='1.4'><body>{''.join(map(_translation_unit, pairs))}</body></tmx>")
    with ZipFile("Books.de-en.zip", "w") as archive:
        for end, text in (("en", sources), ("de", targets)):
            archive.writestr(f"Books.de-en.{end}", text)
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk("wmt/wmt14:de-en")
    shown = [yaml.safe_load(block) for block in blocks(ROOT / "docs" / "train_on_your_own_data.md", "yaml")]
    corpora = next(recipe for recipe in shown if "corpora" in recipe and "stages" not in recipe)
    cleaning = next(recipe for recipe in shown if "drop" in recipe)
    small = yaml.safe_load(Path("recipes/small.yaml").read_text())
    Path("mix.yaml").write_text(yaml.safe_dump(small | corpora | cleaning))
    train(parse_recipe(["mix.yaml", "--output_dir", "out"]), evaluate=lambda *_, **__: {"bleu": 0.0})
    report = json.loads(Path("out/corpus.json").read_text())
    assert report["cleaning"]["dropped"]["duplicates"] == 5 * len(pairs)
    assert set(report["overlap"]) == {"validation", "test"}
