"""The pages are true: the commands and the Python of each run from top to bottom, on tiny models
and texts.
"""

import io
import json
import re
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from glob import glob
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import yaml
from accelerate.state import AcceleratorState
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from tests.comet_files import REGRESSION, UNIFIED, write_comet
from tests.corpora import write_aligned_corpus
from tests.docs_pages import ROOT, SMALL, blocks
from tests.fixtures import DRAW_PICTURE
from tests.golden.removed_tasks import FOLDER
from tests.marian_files import MARIAN_SENTENCES, build_marian_tokenizer, marian_model
from tests.model_variants import model_with_inline_terms
from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.evaluation import plots
from vanilla_transformer.extensions.conversion.commands import WRITERS
from vanilla_transformer.extensions.distillation.distill import distill
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.files import resources
from vanilla_transformer.files.hashes import update_json
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks
from vanilla_transformer.user_input.user_modules import USER_MODULE

pytestmark = pytest.mark.usefixtures("short_translations")

# Commands that need a network, a cluster, a compiler or an hour. `test_docs.py` parses them.
NOT_RUN = (
    "download-data",
    "--engine ray",
    "train-tokenizer",
    "recipes/multi30k_en_de.yaml",
    "--normalize_before",
)
NOT_RUN += (
    "--ema_decay 0.998",
    "vanilla-transformer demo",
    "push-to-hub",
    "check-model runs/demo",
    "--precision",
)
NOT_RUN += ("--layer_types",)
PO_HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
)
TBX = """<tbx><text><body><conceptEntry id="1">
<langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Hund</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""


def page_of(name):
    return ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md"


@pytest.fixture
def workspace(tmp_path, tiny_tokenizer, monkeypatch):
    """Write the text and the models that the pages name, and shorten the recipes of the package."""
    monkeypatch.chdir(tmp_path)
    write_aligned_corpus(tmp_path, train=60, valid=5, test=5)
    mine = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "runs" / "mine")
    for name in ("demo", "teacher", "reverse", "a", "b", "c", "en-de", "de-en", "en-fr"):
        shutil.copytree(mine, tmp_path / "runs" / name)
    for end in ("en", "de", "align"):
        shutil.copy(f"valid.{end}", f"validation.{end}")
    shutil.copy("test.de", "theirs.de")
    recipes = tmp_path / "resources" / "recipes"
    recipes.mkdir(parents=True)
    for name in ("finetune_opus_mt", "student", "multilingual", "pocket", "small"):
        recipe = yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text())
        kept = {
            key: value
            for key, value in SMALL.items()
            if name != "finetune_opus_mt" or key.endswith("_steps")
        }
        (recipes / f"{name}.yaml").write_text(yaml.safe_dump(recipe | kept))
    (tmp_path / "recipes").symlink_to(recipes)
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.setattr(resources, "resource_folder", lambda kind: tmp_path / "resources" / kind)
    for module in ("ctranslate2", "comparison"):  # whose value the other imports
        monkeypatch.setattr(
            f"vanilla_transformer.extensions.conversion.{module}.MAX_NEW_TOKENS", 12
        )
    monkeypatch.setattr(server, "run_server", lambda *_: None)
    monkeypatch.setattr(server, "bind", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    return tmp_path


def run_command(line, monkeypatch):
    words = [path for word in shlex.split(line)[1:] for path in sorted(glob(word)) or [word]]
    if "<" in words:
        place = words.index("<")
        monkeypatch.setattr("sys.stdin", io.StringIO(Path(words[place + 1]).read_text()))
        words = words[:place]
    AcceleratorState._reset_state(reset_partial_state=True)
    if line.startswith("python "):
        runpy.run_path(str(ROOT / words[0]))["EXPERIMENT"].main(words[1:])
    elif words[0] == "check-model":  # there is no card yet
        with pytest.raises(SystemExit, match="cannot be published"):
            main(words)
    else:
        assert main(words) == 0, line


# --- Preparation of a page ------------------------------------------------------------------------


def prepare_alignments(monkeypatch):
    config = json.loads(Path("runs/mine/config.json").read_text())
    Path("runs/mine/config.json").write_text(json.dumps(config | {"alignment_heads": [[0, 1]]}))
    shutil.copy("test.align", "test.hypotheses.align")
    Path("train.align").unlink()


def prepare_architecture(monkeypatch):
    write_multi30k(("en", "de"), valid="val")
    (module,), (rows,) = (
        blocks(page_of("change_the_architecture"), language) for language in ("python", "yaml")
    )
    Path("gated.py").write_text(module)
    small = "layers: 1, d_model: 16, ffn_dim: 16, attention_heads: 2"
    Path("rows.yaml").write_text(
        re.sub("layers: 2, .*heads: 4", small, rows).replace("4000", "300")
    )
    monkeypatch.setenv(USER_MODULE, "")


def prepare_convert(monkeypatch):
    prepare_marian(monkeypatch)
    for form in ("bergamot", "transformers.js"):
        monkeypatch.setitem(WRITERS, form, lambda *given: Path(given[1]).mkdir())


def prepare_distill(monkeypatch):
    """Make room for the further commands, which are other ways to the same folder."""
    for name in ("mono.de", "mono.en"):
        Path(name).write_text("A man.\nA dog.\n")
    Path("candidates.jsonl").write_text(
        '{"source": "A man.", "candidates": ["Ein Mann.", "Ein Hund."]}\n' * 20
    )
    write_comet(Path("Unbabel/wmt22-cometkiwi-da").absolute(), UNIFIED)
    nllb = Path(shutil.copytree(FOLDER / "nllb", "facebook/nllb-200-distilled-600M"))
    update_json(nllb / "generation_config.json", {"max_length": 14})

    def distill_and_make_room(*given, **options):
        found = distill(*given, **options)
        found.folder.rename(f"runs/student {len(glob('runs/student *'))}")
        return found

    monkeypatch.setattr(
        "vanilla_transformer.extensions.distillation.distill.distill", distill_and_make_room
    )
    # The teacher's weights are random.
    monkeypatch.setattr(
        "vanilla_transformer.extensions.distillation.teacher.check_direction", lambda *_: None
    )


def prepare_documents(monkeypatch):
    Path("page.html").write_text("<p>Two <b>dogs</b>.</p>\n")
    Path("messages.po").write_text('msgid "Dogs."\nmsgstr ""\n')
    assert main(["convert", "runs/mine", "runs/fast", "--target_format", "ctranslate2"]) == 0
    Path("project.sdlxliff").write_text(
        "<xliff version='1.2'><trans-unit><source>Dogs.</source></trans-unit></xliff>"
    )


def prepare_evaluate(monkeypatch):
    write_comet(Path("Unbabel/wmt22-comet-da").absolute(), REGRESSION)


def prepare_languages(monkeypatch):
    write_multi30k(("en", "de", "fr"), valid="val", test="test_2016_flickr")


def prepare_localize(monkeypatch):
    """Write a catalog of the training text, and run the lines that hold out strings, with fewer of
    them.
    """
    prepare_marian(monkeypatch)
    page, pairs = (
        page_of("localize_software"),
        zip(*(Path(f"train.{end}").read_text().splitlines() for end in ("en", "de")), strict=True),
    )
    messages = [f'msgid "{source} %s"\nmsgstr "{target} %s"\n' for source, target in pairs]
    Path("de.po").write_text(PO_HEADER + "\n".join(messages))
    Path("new.po").write_text(
        PO_HEADER + 'msgid "The dog."\nmsgstr "Der Hund."\n\nmsgid "Open %s"\nmsgstr ""\n'
    )
    Path("strings.yaml").write_text(blocks(page, "yaml")[0])
    Path("terms.tsv").write_text("door\tTür\n")
    run_command(blocks(page, "bash")[0].strip(), monkeypatch)
    split = re.sub(r"1000|500", lambda match: str(int(match[0]) // 100), blocks(page, "sh")[0])
    subprocess.run(["bash", "-ec", split], check=True)
    shutil.rmtree("strings")
    shutil.copytree("runs/mine", "runs/strings-2")


def prepare_marian(monkeypatch):
    folder = Path("Helsinki-NLP/opus-mt-en-de").absolute()
    folder.mkdir(parents=True)
    tokenizer = build_marian_tokenizer(Path.cwd(), MARIAN_SENTENCES * 3)
    save_model_folder(marian_model(len(tokenizer)), tokenizer, folder)
    for place in (folder, Path("runs/mine")):  # few sentences to compare a converted model on
        (place / "recipe.json").write_text(json.dumps({"validation_source": "validation.en"}))


def prepare_new_language(monkeypatch):
    """Write NLLB and OPUS-MT with random weights, and train by the flags of the page's table."""
    for name in ("train", "validation", "test", "mono"):
        shutil.copy("test.de" if name == "mono" else f"{name}.de", f"{name}.hsb")
    shutil.rmtree("runs/reverse")
    nllb = Path(shutil.copytree(FOLDER / "nllb", "facebook/nllb-200-distilled-600M"))
    weights, tokenizer = load_file(nllb / "model.safetensors"), AutoTokenizer.from_pretrained(nllb)
    weights["model.shared.weight"][tokenizer.all_special_ids] = (
        0.0  # it would write little else than codes of languages
    )
    save_file(weights, nllb / "model.safetensors", {"format": "pt"})
    settings = json.loads((nllb / "generation_config.json").read_text())
    (nllb / "generation_config.json").write_text(
        json.dumps(settings | {"max_length": 12, "no_repeat_ngram_size": 1})
    )
    page = page_of("new_language").read_text()
    Path("final.yaml").write_text(
        blocks(page_of("new_language"), "yaml")[0] + yaml.safe_dump({"max_steps": 2})
    )
    files = "--train_source train.en --train_target train.hsb --output_dir runs/table"
    for model, flags in re.findall(r"`--init_from (Helsinki-NLP/\S+) (--[^`]+)`", page):
        folder = Path(model)
        folder.mkdir(parents=True)
        build_marian_tokenizer(folder)
        vocabulary = json.loads((folder / "vocab.json").read_text())
        tags = [">>ces<<", ">>hsb<<"] if model.endswith("sla") else []
        vocabulary |= {tag: len(vocabulary) + place for place, tag in enumerate(tags)}
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        languages = {"source_lang": "eng", "target_lang": model[-3:].lstrip("-")}
        (folder / "tokenizer_config.json").write_text(
            json.dumps(languages | {"tokenizer_class": "MarianTokenizer"})
        )
        marian_model(len(vocabulary)).save_pretrained(folder)
        run_command(
            f"vanilla-transformer train finetune_opus_mt --init_from {model} {flags} "
            f"{files}-{folder.name}",
            monkeypatch,
        )


def prepare_pocket(monkeypatch):
    """Leave to other tests what translates in Node: `tests/extensions/conversion/slow` runs the
    page's commands.
    """
    shutil.rmtree("runs/teacher")
    recipe = Path("recipes/pocket.yaml")
    tiny = {"vocab_size": 320, "drop_warnings": False}  # an untrained teacher repeats words
    recipe.write_text(yaml.safe_dump(yaml.safe_load(recipe.read_text()) | tiny))
    shutil.copy("test.de", "pocket.de")
    monkeypatch.setitem(WRITERS, "transformers.js", lambda *given: Path(given[1]).mkdir())
    monkeypatch.setattr(
        "vanilla_transformer.extensions.distillation.teacher.check_direction", lambda *_: None
    )


def prepare_reranking(monkeypatch):
    shutil.copy("test.en", "corpus.en")
    write_comet(Path("Unbabel/wmt22-cometkiwi-da").absolute(), UNIFIED)


def prepare_scores(monkeypatch):
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])  # takes seconds
    for text, count in (("validation", 50), ("test", 1)):
        Path(f"{text}.en").write_text("Dogs.\nTwo dogs.\n" * count)
        Path(f"{text}.de").write_text("Hunde.\nZwei Hunde.\n" * count)


def prepare_serve(monkeypatch):
    Path("keys.txt").write_text("secret\n")
    Path("terms.tsv").write_text("dog\tHund\n")


def prepare_terms(monkeypatch):
    save_model_folder(*model_with_inline_terms(), Path("runs/terms"))
    Path("text.en").write_text("The small dog sleeps.\n")
    Path("terms.tbx").write_text(TBX)
    for name in ("terms.tsv", "terms1.tsv"):
        Path(name).write_text("dog\tHund\n")
    for end in ("en", "de"):
        shutil.copy(f"test.{end}", f"terms1.{end}")


def prepare_training_with_pictures(monkeypatch):
    prepare_training(monkeypatch)
    monkeypatch.setattr(plots, "draw_picture", DRAW_PICTURE)


def prepare_training(monkeypatch):
    shutil.rmtree("runs/mine")


def prepare_translate(monkeypatch):
    Path("source.txt").write_text("The child sleeps.\nA man.\n")
    Path("prefixes.txt").write_text("Das Kind\n\n")
    Path("text.en").write_text("A man.\tEin Mann\n")


def write_multi30k(ends, **names):
    """Write `data/multi30k` with few sentences of each language."""
    data = Path("data/multi30k")
    data.mkdir(parents=True)
    for ours, theirs in {"train": "train", **names}.items():
        for end in ends:
            lines = (
                Path(f"{ours}.{'en' if end == 'en' else 'de'}")
                .read_text()
                .splitlines(keepends=True)
            )
            (data / f"{theirs}.{end}").write_text("".join(lines if ours == "train" else lines[:1]))


# --- Promises of a page ---------------------------------------------------------------------------


def check_alignments(names, printed):
    assert " ||| " in printed and "\nAER 0.0" in printed
    assert names["least_likely"].probability < 0.5
    text, other = (
        names["explanation"].source,
        "A young boy in a red shirt is jumping over a small fence.",
    )
    assert text in Path("page.html").read_text() and other not in Path("page.html").read_text()


def check_architecture(names, printed):
    assert json.loads(Path("runs/gated/config.json").read_text())["architectures"] == [
        "GatedTransformer"
    ]
    assert Path("runs/gated/gated.py").read_text() == Path("gated.py").read_text()
    with safe_open("runs/gated/model.safetensors", "pt") as weights:
        assert "model.encoder.layers.0.gate.weight" in weights.keys()  # noqa: SIM118
    assert len(json.loads(Path("runs/ablation/table3/results.json").read_text())["runs"]) == 3
    assert "| gated encoder |" in Path("runs/ablation/table3/table.md").read_text()
    assert ", p = " in printed and "signature" in Path("gated.json").read_text()


def check_convert(names, printed):
    assert Path("runs/fast/model.bin").exists() and Path("runs/demo-js").exists()
    assert (
        json.loads(Path("runs/opus/config.json").read_text())["model_type"] == "vanilla_transformer"
    )


def check_distill(names, printed):
    recipes = [
        json.loads(Path(f"runs/student {number}/recipe.json").read_text()) for number in range(4)
    ]
    assert [recipe["init_from"] for recipe in recipes] == [None, "runs/teacher", None, None]
    lines = Path("runs/student 2/distillation/corpora/corpus-0.tsv").read_text().splitlines()
    assert {line.split("\t")[0] for line in lines} <= {"A man.", "A dog."}
    assert len(Path("back.tsv").read_text().splitlines()) == 2


def check_documents(names, printed):
    assert "<source>Dogs.</source><target state=" in Path("project.de.sdlxliff").read_text()
    assert "#, fuzzy" in Path("messages.de.po").read_text()
    translated = Path("page.de.html").read_text()
    assert (
        re.fullmatch(r"<p>.*<b>.*</b>.*</p>\n", translated, re.DOTALL) and "dogs" not in translated
    )
    assert printed.splitlines()[-1] == "<p>zwei <b>Hunde</b> schlafen.</p>"
    sentences = [Sentence("Two dogs run.", "", ()), Sentence("A man.", "", ())]
    (first, second) = names["translate_by_ctranslate2"](sentences)
    assert first.text != second.text and second.text


def check_evaluate(names, printed):
    shown = blocks(page_of("evaluate"), "text")[0]
    signatures = [line.split("  ")[1] for line in shown.splitlines() if "  " in line]
    pinned = re.search(r"^sacrebleu==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[
        1
    ]
    expected = [
        each.replace(f"version:{pinned}", f"version:{sacrebleu.__version__}") for each in signatures
    ]
    assert len(expected) == 2 and all(signature in printed for signature in expected)
    assert "±: half of the 95 % confidence interval" in printed and ", p = " in printed


def check_localize(names, printed):
    lines = {
        name: len(Path(f"{name}.de").read_text().splitlines())
        for name in ("train", "validation", "test")
    }
    assert lines == {"train": 50, "validation": 5, "test": 5}
    written = Path("new.de.po").read_text()
    assert (
        'msgstr "Der Hund."' in written
        and "#, fuzzy" in written.split('msgid "Open %s"')[0].splitlines()[-1]
    )
    assert Path("report.html").exists() and ", p = " in printed and printed.count("Serving ") == 3


def check_new_language(names, printed):
    config = json.loads(Path("runs/table-opus-mt-en-sla/tokenizer_config.json").read_text())
    assert config["directions"] == [["en", "hsb"]]
    assert Path("back.tsv").read_text().startswith("<BT> ")
    assert (
        json.loads(Path("runs/final/config.json").read_text())["vocab_size"] == 285
    )  # NLLB's and the tag
    assert ", p = " in printed


def check_pocket(names, printed):
    assert {"lex.bin", "translate.cjs"} <= {
        path.name for path in Path("runs/pocket-bergamot").iterdir()
    }
    assert (
        Path("runs/pocket-bergamot/lex.bin").stat().st_size
        and Path("runs/pocket-ct2/vmap.txt").exists()
    )
    assert "BLEU 100.00" in printed and ", p = " in printed


def check_scores(names, printed):
    row = json.loads(Path("scores.jsonl").read_text().splitlines()[0])
    first = next(float(line) for line in printed.splitlines() if re.fullmatch(r"-\d+\.\d+", line))
    assert first == pytest.approx(row["log_probability"], abs=1e-5)
    assert names["least_likely"]["log_probability"] < 0 <= names["answer"]["confidence"] <= 1
    assert "\nplain " in printed and Path("runs/mine/stress_tables/test.json").is_file()


def check_training(names, printed):
    table = re.search(
        r"\| in `output_dir`.*?\n\n", page_of("train_on_your_own_data").read_text(), re.DOTALL
    )[0]
    promised = set(re.findall(r"`([\w.]+)/?`", table)) - {
        "output_dir",
        "ema",
    }  # the moving average is optional
    assert promised <= {path.name for path in Path("runs/mine").iterdir()}
    assert "Nothing has been written." in printed and "BLEU" in printed
    assert Path("runs/mean/model.safetensors").exists()
    logged = [
        json.loads(line) for line in (names["folder"] / "metrics.jsonl").read_text().splitlines()
    ]
    assert {"bleu", "chrf", "validation_loss"} <= logged[-1].keys()


def check_first_translation(names, _):
    readme = page_of("README").read_text()
    ((text, answer),) = re.findall(r'^translate\("(.+)"\)  # (.+)$', readme, re.MULTILINE)
    assert str(names["translate"](text)) == answer
    home = page_of("index").read_text()
    assert f'translate("{text}")\n' in home and f"The answer is `{answer}`" in home


def check_readme(names, printed):
    check_first_translation(names, printed)
    batch, promised = (
        names["batch"],
        re.search(r"skip_special_tokens=True\)  # (.+)", page_of("README").read_text())[1],
    )
    assert names["outputs"].loss < 1
    tokens = names["model"].generate(batch["input_ids"])
    assert str(names["tokenizer"].batch_decode(tokens, skip_special_tokens=True)) == promised


# Each page: the number of its commands that run, the preparation, and the check.
PAGES: dict[str, tuple[int, Callable | None, Callable[[dict[str, Any], str], None] | None]] = {
    "README": (4, prepare_training, check_readme),
    "alignments": (6, prepare_alignments, check_alignments),
    "change_the_architecture": (6, prepare_architecture, check_architecture),
    "convert": (3, prepare_convert, check_convert),
    "decoder_only_and_encoder_only": (0, None, lambda _, printed: printed.index("Where is the ")),
    "decoding": (0, None, None),
    "distill": (5, prepare_distill, check_distill),
    "documents": (2, prepare_documents, check_documents),
    "evaluate": (5, prepare_evaluate, check_evaluate),
    "index": (0, None, check_first_translation),
    "fine_tune": (1, prepare_marian, lambda *_: Path("runs/tuned/model.safetensors").stat()),
    "localize_software": (9, prepare_localize, check_localize),
    "long_sequences": (0, None, lambda names, _: names["memory"].layers[0].keys[:, 10]),
    "many_languages": (3, prepare_languages, lambda _, printed: printed.index("fr-de")),
    "new_language": (8, prepare_new_language, check_new_language),
    "pocket_model": (9, prepare_pocket, check_pocket),
    "quickstart": (5, prepare_training, None),
    "reranking": (5, prepare_reranking, None),
    "scores": (6, prepare_scores, check_scores),
    "serve": (8, prepare_serve, lambda _, printed: printed.index("Serving ")),
    "terms_and_markup": (4, prepare_terms, lambda *_: Path("text.de").read_text()[0]),
    "train_on_your_own_data": (6, prepare_training_with_pictures, check_training),
    "translate": (10, prepare_translate, None),
    "use_from_transformers": (0, None, lambda _, printed: printed.index("trainable params")),
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
@pytest.mark.parametrize("name", PAGES)
def test_page_runs_from_top_to_bottom(name, workspace, monkeypatch, capsys):
    expected, prepare, check = PAGES[name]
    if prepare is not None:
        prepare(monkeypatch)
    names, ran = {}, 0
    for language, block in re.findall(
        r"^```(bash|python)\n(.*?)^```", page_of(name).read_text(), re.DOTALL | re.M
    ):
        if language == "python" and name != "change_the_architecture":  # whose class is in a file
            exec(block.replace("compile=True", "compile=False"), names)  # compiling takes minutes
        for line in block.replace("\\\n", " ").splitlines() if language == "bash" else []:
            if line.startswith(("vanilla-transformer ", "python examples/")) and not any(
                text in line for text in NOT_RUN
            ):
                run_command(line.replace("--budget 3000 --seeds 3", "--budget 1"), monkeypatch)
                ran += 1
    sys.modules.pop("gated", None)
    assert ran >= expected, "some commands of the page do not run any more"
    if check is not None:
        check(names, capsys.readouterr().out)
