"""The commands of pages by task run on tiny models, in this process; `serve` is stopped before it serves."""

import io
import json
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState
from safetensors import safe_open

from tests.aligned_corpus import write_aligned_corpus
from tests.comet_files import UNIFIED, write_comet
from tests.docs_pages import ROOT, SMALL, blocks
from tests.inline_terms import model_with_inline_terms
from tests.marian_models import MARIAN_SENTENCES, build_marian_tokenizer, marian_model
from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion.commands import WRITERS
from vanilla_transformer.extensions.distillation.distill import distill
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.utils import resources
from vanilla_transformer.utils.file_utils import save_model_folder
from vanilla_transformer.utils.import_utils import USER_MODULE

pytestmark = pytest.mark.usefixtures("short_translations")

TBX = """<tbx><text><body><conceptEntry id="1">
<langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Hund</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""
# Commands that need a network, a cluster or an hour. `test_docs.py` parses them.
NOT_RUN = ("download-data", "--engine ray", "train-tokenizer", "recipes/multi30k_en_de.yaml", "--normalize_before")
NOT_RUN += ("--ema_decay 0.998",)


@pytest.fixture
def workspace(tmp_path, tiny_tokenizer, monkeypatch):
    """Write the text and the models that the pages name, and shorten the recipes of the package."""
    monkeypatch.chdir(tmp_path)
    write_aligned_corpus(tmp_path, train=60, valid=5, test=5)
    mine = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "runs" / "mine")
    for name in ("teacher", "reverse", "a", "b", "c", "en-de", "de-en", "en-fr"):
        shutil.copytree(mine, tmp_path / "runs" / name)
    marian = tmp_path / "Helsinki-NLP" / "opus-mt-en-de"
    marian.mkdir(parents=True)
    tokenizer = build_marian_tokenizer(tmp_path, MARIAN_SENTENCES * 3)
    save_model_folder(marian_model(len(tokenizer)), tokenizer, marian)
    for end in ("en", "de"):
        shutil.copy(f"valid.{end}", f"validation.{end}")
    for folder in (marian, tmp_path / "runs" / "mine"):  # few sentences to compare a converted model on
        (folder / "recipe.json").write_text(json.dumps({"validation_source": "validation.en"}))
    recipes = tmp_path / "resources" / "recipes"
    recipes.mkdir(parents=True)
    for name in ("finetune_opus_mt", "student", "multilingual", "small"):
        recipe = yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text())
        kept = {key: value for key, value in SMALL.items() if name != "finetune_opus_mt" or key.endswith("_steps")}
        (recipes / f"{name}.yaml").write_text(yaml.safe_dump(recipe | kept))
    monkeypatch.setattr(resources, "resource_folder", lambda kind: tmp_path / "resources" / kind)
    return tmp_path


def run(page, monkeypatch):
    """Run the commands of a page from top to bottom, except for `NOT_RUN`, and return how many have run."""
    lines = "".join(blocks(ROOT / "docs" / f"{page}.md", "bash")).replace("\\\n", " ").splitlines()
    lines = [line for line in lines if not any(text in line for text in NOT_RUN)]
    for line in lines:
        words = shlex.split(line.replace("--budget 3000 --seeds 3", "--budget 1"))[1:]
        if "<" in words:
            place = words.index("<")
            monkeypatch.setattr("sys.stdin", io.StringIO(Path(words[place + 1]).read_text()))
            words = words[:place]
        AcceleratorState._reset_state(reset_partial_state=True)
        assert main(words) == 0, line
    return len(lines)


def test_docs_convert_commands_run(workspace, monkeypatch):
    for module in ("ctranslate2", "common"):  # whose value the other imports
        monkeypatch.setattr(f"vanilla_transformer.extensions.conversion.{module}.MAX_NEW_TOKENS", 12)
    exported = []
    monkeypatch.setitem(WRITERS, "transformers.js", lambda *given: exported.append(given[:2]))
    assert run("convert", monkeypatch) == 3
    assert exported == [("runs/demo", "runs/demo-js")] and Path("runs/fast/model.bin").exists()
    assert json.loads(Path("runs/opus/config.json").read_text())["model_type"] == "vanilla_transformer"


def test_docs_distill_commands_run(workspace, monkeypatch):
    Path("mono.de").write_text("A man.\nA dog.\n")
    ended = []

    def distill_and_make_room(*given, **options):
        """Make room for the second command, which is another way to the same folder."""
        found = distill(*given, **options)
        ended.append(json.loads((found.folder / "recipe.json").read_text())["init_from"])
        found.folder.rename(f"runs/student {len(ended)}")
        return found

    monkeypatch.setattr("vanilla_transformer.extensions.distillation.distill.distill", distill_and_make_room)
    # The teacher's weights are random.
    monkeypatch.setattr("vanilla_transformer.extensions.distillation.distill.check_direction", lambda *_: None)
    assert run("distill", monkeypatch) == 3
    assert ended == [None, "runs/teacher"] and len(Path("back.tsv").read_text().splitlines()) == 2


def test_docs_fine_tune_command_runs(workspace, monkeypatch):
    assert run("fine_tune", monkeypatch) == 1
    assert Path("runs/tuned/model.safetensors").exists()


def test_docs_change_the_architecture_runs(workspace, monkeypatch, capsys):
    page, data = ROOT / "docs" / "change_the_architecture.md", workspace / "data" / "multi30k"
    data.mkdir(parents=True)
    for end in ("en", "de"):
        shutil.copy(f"train.{end}", data / f"train.{end}")
        (data / f"val.{end}").write_text("".join(Path(f"valid.{end}").read_text().splitlines(keepends=True)[:1]))
    ((module,), (rows,)) = blocks(page, "python"), blocks(page, "yaml")
    Path("gated.py").write_text(module)
    small = "layers: 1, d_model: 16, ffn_dim: 16, attention_heads: 2"
    Path("rows.yaml").write_text(re.sub("layers: 2, .*heads: 4", small, rows).replace("4000", "300"))
    monkeypatch.setenv(USER_MODULE, "")
    try:
        assert run("change_the_architecture", monkeypatch) == 6
    finally:
        sys.modules.pop("gated", None)
    assert json.loads(Path("runs/gated/config.json").read_text())["architectures"] == ["GatedTransformer"]
    assert Path("runs/gated/gated.py").read_text() == module
    with safe_open("runs/gated/model.safetensors", "pt") as weights:
        assert "model.encoder.layers.0.gate.weight" in weights.keys()  # noqa: SIM118
    table = json.loads(Path("runs/ablation/table3/results.json").read_text())
    assert len(table["runs"]) == 3


def test_docs_many_languages_commands_run(workspace, monkeypatch, capsys):
    data = workspace / "data" / "multi30k"
    data.mkdir(parents=True)
    for name, own in (("train", "train"), ("val", "validation"), ("test_2016_flickr", "test")):
        for end, side in (("en", "en"), ("de", "de"), ("fr", "de")):
            lines = Path(f"{own}.{side}").read_text().splitlines(keepends=True)
            (data / f"{name}.{end}").write_text("".join(lines if name == "train" else lines[:1]))
    assert run("many_languages", monkeypatch) == 4
    assert "fr-de" in capsys.readouterr().out
    for block in blocks(ROOT / "docs" / "many_languages.md", "python"):
        exec(block, {})


def test_docs_serve_commands_load_their_models(workspace, monkeypatch, capsys):
    assert main(["convert", "runs/mine", "runs/fast", "--target_format", "ctranslate2"]) == 0
    Path("keys.txt").write_text("secret\n")
    services = []
    monkeypatch.setattr(server, "run_server", lambda service, listener, _: services.append(service))
    monkeypatch.setattr(server, "bind", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    assert run("serve", monkeypatch) == len(services) == 8
    assert capsys.readouterr().out.count("Serving ") == 8


def test_docs_terms_commands_run(workspace, monkeypatch):
    save_model_folder(*model_with_inline_terms(), Path("runs/terms"))
    Path("text.en").write_text("The small dog sleeps.\n")
    Path("terms.tbx").write_text(TBX)
    for name in ("terms.tsv", "terms1.tsv"):
        Path(name).write_text("dog\tHund\n")
    for end in ("en", "de"):
        shutil.copy(f"test.{end}", f"terms1.{end}")
    assert run("terms_and_markup", monkeypatch) == 4
    assert Path("text.de").read_text().strip()


def test_docs_translate_commands_run(workspace, monkeypatch):
    Path("source.txt").write_text("The child sleeps.\nA man.\n")
    Path("prefixes.txt").write_text("Das Kind\n\n")
    Path("text.en").write_text("A man.\tEin Mann\n")
    shutil.copy("test.en", "corpus.en")
    write_comet(Path("Unbabel/wmt22-cometkiwi-da").absolute(), UNIFIED)
    assert run("translate", monkeypatch) + run("reranking", monkeypatch) > 15
