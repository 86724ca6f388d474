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
from tests.sweeps import sample
from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.evaluation import plots
from vanilla_transformer.extensions.conversion.commands import WRITERS
from vanilla_transformer.extensions.distillation.distill import distill
from vanilla_transformer.extensions.memory.suggestions import Suggestions
from vanilla_transformer.extensions.quality import calibration
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.files import resources
from vanilla_transformer.files.hashes import update_json
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.user_input.user_modules import USER_MODULE

pytestmark = pytest.mark.usefixtures("short_translations")
BLOCKS = re.DOTALL | re.MULTILINE

# Commands that need a network, a cluster, a compiler or an hour. `test_docs.py` parses them.
NOT_RUN = ("download-data", "--engine ray", "train-tokenizer", "--normalize_before")
NOT_RUN += ("recipes/multi30k_en_de.yaml", "--ema_decay 0.998", "push-to-hub")
NOT_RUN += ("vanilla-transformer demo", "check-model runs/demo", "--precision")
NOT_RUN += ("--layer_types", "letters_to_phonemes")
PO_HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n'
PO_HEADER += '"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
NEW_STRINGS = 'msgid "The dog."\nmsgstr "Der Hund."\n\nmsgid "Open %s"\nmsgstr ""\n'
SDLXLIFF = "<xliff version='1.2'><trans-unit><source>Dogs.</source></trans-unit></xliff>"
CHECK_DIRECTION = "vanilla_transformer.extensions.distillation.teacher.check_direction"
MODELS = ("demo", "teacher", "reverse", "a", "b", "c", "en-de", "de-en", "en-fr")
PO_HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
)
TBX = """<tbx><text><body><conceptEntry id="1">
<langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Hund</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""


def read_lines(path):
    return Path(path).read_text().splitlines()


def read_json(path):
    return json.loads(Path(path).read_text())


def change_json(path, **changes):
    path.write_text(json.dumps(read_json(path) | changes))


def page_of(name):
    return ROOT / "README.md" if name == "README" else ROOT / "docs" / f"{name}.md"


def bind_any_port(host, port):
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture
def workspace(tmp_path, tiny_tokenizer, monkeypatch):
    """Write the text and the models that the pages name, and shorten the recipes of the package."""
    monkeypatch.chdir(tmp_path)
    write_aligned_corpus(tmp_path, train=60, valid=5, test=5)
    mine = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "runs" / "mine")
    for name in MODELS:
        shutil.copytree(mine, tmp_path / "runs" / name)
    for end in ("en", "de", "align"):
        shutil.copy(f"valid.{end}", f"validation.{end}")
    shutil.copy("test.de", "theirs.de")
    recipes = tmp_path / "resources" / "recipes"
    recipes.mkdir(parents=True)
    for name in ("finetune_opus_mt", "student", "multilingual", "pocket", "small"):
        recipe = yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text())
        small = dict(SMALL)
        if name == "finetune_opus_mt":
            small = {key: SMALL[key] for key in SMALL if key.endswith("_steps")}
        (recipes / f"{name}.yaml").write_text(yaml.safe_dump(recipe | small))
    (tmp_path / "recipes").symlink_to(recipes)
    (tmp_path / "models").symlink_to(ROOT / "models")
    kinds = tmp_path / "resources"
    monkeypatch.setattr(resources, "resource_folder", lambda kind: kinds / kind)
    for module in ("ctranslate2", "comparison"):  # whose value the other imports
        module = f"vanilla_transformer.extensions.conversion.{module}"
        monkeypatch.setattr(f"{module}.MAX_NEW_TOKENS", 12)
    # to compare a converted model on
    monkeypatch.setattr("vanilla_transformer.extensions.conversion.commands._SENTENCES", 5)
    monkeypatch.setattr(server, "run_server", lambda *_: None)
    monkeypatch.setattr(server, "bind", bind_any_port)
    return tmp_path


def run_command(line, monkeypatch):
    words = []
    for word in shlex.split(line)[1:]:
        words += sorted(glob(word)) or [word]
    if "<" in words:
        index = words.index("<")
        text = Path(words[index + 1]).read_text()
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        words = words[:index]
    # Random weights write texts with warnings.
    keeping = {"distill": "--no_drop_warnings", "back-translate": "--keep_warnings"}
    if keeping.get(words[0], words[0]) not in words:
        words.append(keeping[words[0]])
    AcceleratorState._reset_state(reset_partial_state=True)
    if line.startswith("python "):
        runpy.run_path(str(ROOT / words[0]))["EXPERIMENT"].main(words[1:])
    elif words[0] == "check-model":  # there is no card yet
        with pytest.raises(SystemExit, match="cannot be published"):
            main(words)
    elif "--fail_on_warnings" in words:  # whose translations by random weights have some
        assert main(words) == 2, line
    else:
        assert main(words) == 0, line


# --- Preparation of a page ------------------------------------------------------------------------


def prepare_alignments(monkeypatch):
    change_json(Path("runs/mine/config.json"), alignment_heads=[[0, 1]])
    shutil.copy("test.align", "test.hypotheses.align")
    Path("train.align").unlink()


def prepare_architecture(monkeypatch):
    write_multi30k(("en", "de"), valid="val")
    page = page_of("change_the_architecture")
    (module,), (rows,) = blocks(page, "python"), blocks(page, "yaml")
    Path("gated.py").write_text(module)
    small = "layers: 1, d_model: 16, ffn_dim: 16, attention_heads: 2"
    rows = re.sub("layers: 2, .*heads: 4", small, rows).replace("4000", "300")
    Path("rows.yaml").write_text(rows)
    monkeypatch.setenv(USER_MODULE, "")


def write_nothing(_, folder, *sentences):
    """Stand for the writer of a form, and make an empty folder."""
    Path(folder).mkdir()


def prepare_convert(monkeypatch):
    prepare_marian(monkeypatch)
    for form in ("bergamot", "transformers.js"):
        monkeypatch.setitem(WRITERS, form, write_nothing)


def prepare_distill(monkeypatch):
    """Make room for the further commands, which are other ways to the same folder."""
    for name in ("mono.de", "mono.en"):
        Path(name).write_text("A man.\nA dog.\n")
    example = '{"source": "A man.", "candidates": ["Ein Mann.", "Ein Hund."]}\n'
    Path("candidates.jsonl").write_text(example * 20)
    write_comet(Path("Unbabel/wmt22-cometkiwi-da").absolute(), UNIFIED)
    nllb = Path(shutil.copytree(FOLDER / "nllb", "facebook/nllb-200-distilled-600M"))
    update_json(nllb / "generation_config.json", {"max_length": 14})

    def distill_and_make_room(*arguments, **options):
        student = distill(*arguments, **options)
        student.folder.rename(f"runs/student {len(glob('runs/student *'))}")
        return student

    module = "vanilla_transformer.extensions.distillation.distill"
    monkeypatch.setattr(f"{module}.distill", distill_and_make_room)
    # The teacher's weights are random.
    monkeypatch.setattr(CHECK_DIRECTION, lambda *_: None)


def write_messages():
    """Write messages with a translation that lacks one."""
    Path("en.json").write_text('{"a": "A dog.", "b": "Dogs."}\n')
    Path("de.json").write_text('{"b": "Hunde."}\n')


def prepare_documents(monkeypatch):
    Path("page.html").write_text("<p>Two <b>dogs</b>.</p>\n")
    Path("messages.po").write_text('msgid "Dogs."\nmsgstr ""\n')
    write_messages()
    command = ["convert", "runs/mine", "runs/fast", "--target_format", "ctranslate2"]
    assert main(command) == 0
    Path("project.sdlxliff").write_text(SDLXLIFF)
    Path("shop.csv").write_text('id,name,description\n"a1",A dog,"Dogs, too."\n')


def prepare_evaluate(monkeypatch):
    shutil.copytree("runs/mine", "runs/new")
    write_comet(Path("Unbabel/wmt22-comet-da").absolute(), REGRESSION)


def prepare_languages(monkeypatch):
    write_multi30k(("en", "de", "fr"), valid="val", test="test_2016_flickr")


def prepare_localize(monkeypatch):
    """Write a catalog of the training text, and run the lines that hold out strings, with fewer of
    them.
    """
    prepare_marian(monkeypatch)
    page = page_of("localize_software")
    messages = []
    for source, target in zip(read_lines("train.en"), read_lines("train.de"), strict=True):
        messages.append(f'msgid "{source} %s"\nmsgstr "{target} %s"\n')
    Path("de.po").write_text(PO_HEADER + "\n".join(messages))
    Path("new.po").write_text(PO_HEADER + NEW_STRINGS)
    write_messages()
    Path("strings.yaml").write_text(blocks(page, "yaml")[0])
    Path("terms.tsv").write_text("door\tTür\n")
    run_command(blocks(page, "bash")[0].strip(), monkeypatch)
    split = blocks(page, "sh")[0].replace("1000", "10").replace("500", "5")
    subprocess.run(["bash", "-ec", split], check=True)
    shutil.rmtree("strings")
    shutil.copytree("runs/mine", "runs/strings-2")


def prepare_marian(monkeypatch):
    folder = Path("Helsinki-NLP/opus-mt-en-de").absolute()
    folder.mkdir(parents=True)
    tokenizer = build_marian_tokenizer(Path.cwd(), MARIAN_SENTENCES * 3)
    save_model_folder(marian_model(len(tokenizer)), tokenizer, folder)
    # Few sentences to compare a converted model on.
    recipe = json.dumps({"validation_source": "validation.en"})
    for model in (folder, Path("runs/mine")):
        (model / "recipe.json").write_text(recipe)


def prepare_new_language(monkeypatch):
    """Write NLLB and OPUS-MT with random weights, and train by the flags of the page's table."""
    for name in ("train", "validation", "test", "mono"):
        shutil.copy("test.de" if name == "mono" else f"{name}.de", f"{name}.hsb")
    shutil.rmtree("runs/reverse")
    nllb = Path(shutil.copytree(FOLDER / "nllb", "facebook/nllb-200-distilled-600M"))
    weights = load_file(nllb / "model.safetensors")
    codes = AutoTokenizer.from_pretrained(nllb).all_special_ids
    # It would write little else than codes of languages.
    weights["model.shared.weight"][codes] = 0.0
    save_file(weights, nllb / "model.safetensors", {"format": "pt"})
    settings = {"max_length": 12, "no_repeat_ngram_size": 1}
    change_json(nllb / "generation_config.json", **settings)
    page = page_of("new_language").read_text()
    (recipe, *_) = blocks(page_of("new_language"), "yaml")
    Path("final.yaml").write_text(recipe + yaml.safe_dump({"max_steps": 2}))
    files = "--train_source train.en --train_target train.hsb --output_dir runs/table"
    for model, flags in re.findall(r"`--init_from (Helsinki-NLP/\S+) (--[^`]+)`", page):
        folder = Path(model)
        folder.mkdir(parents=True)
        build_marian_tokenizer(folder)
        vocabulary = read_json(folder / "vocab.json")
        if model.endswith("sla"):
            vocabulary[">>ces<<"] = len(vocabulary)
            vocabulary[">>hsb<<"] = len(vocabulary)
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        languages = {"source_lang": "eng", "target_lang": model[-3:].lstrip("-")}
        languages["tokenizer_class"] = "MarianTokenizer"
        (folder / "tokenizer_config.json").write_text(json.dumps(languages))
        marian_model(len(vocabulary)).save_pretrained(folder)
        command = f"vanilla-transformer train finetune_opus_mt --init_from {model}"
        run_command(f"{command} {flags} {files}-{folder.name}", monkeypatch)


def prepare_pocket(monkeypatch):
    """Leave to other tests what translates in Node: `tests/extensions/conversion/slow` runs the
    page's commands.
    """
    shutil.rmtree("runs/teacher")
    recipe = Path("recipes/pocket.yaml")
    # An untrained teacher repeats words.
    tiny = {"vocab_size": 320, "drop_warnings": False}
    recipe.write_text(yaml.safe_dump(yaml.safe_load(recipe.read_text()) | tiny))
    shutil.copy("test.de", "pocket.de")
    monkeypatch.setitem(WRITERS, "transformers.js", write_nothing)
    monkeypatch.setattr(CHECK_DIRECTION, lambda *_: None)


def prepare_reranking(monkeypatch):
    shutil.copy("test.en", "corpus.en")
    write_comet(Path("Unbabel/wmt22-cometkiwi-da").absolute(), UNIFIED)


def prepare_scores(monkeypatch):
    # It takes seconds.
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])
    monkeypatch.setattr(calibration, "LEAST_SENTENCES", 20)
    for text, count in (("validation", 10), ("test", 1)):
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


def prepare_memory(monkeypatch):
    """Write a memory, and the corrections that a service has stored."""
    unit = (
        "<tu><tuv xml:lang='en'><seg>Dog.</seg></tuv><tuv xml:lang='de'><seg>Hund.</seg></tuv></tu>"
    )
    Path("memory.tmx").write_text(f"<tmx version='1.4'><body>{unit}</body></tmx>")
    Path("messages.po").write_text(PO_HEADER + 'msgid "Cat."\nmsgstr "Katze."\n')
    Path("text.en").write_text("Dog.\nCat.\n")
    for name, text in {"": "A.\n\nTwo dogs.\n", ".old": "A.\n", ".old.de": "Ein Hund!\n"}.items():
        Path(f"page{name}.md").write_text(text)
    Path("source.txt").write_text("The child sleeps.\nA man.\n")
    Path("old_translation.txt").write_text("Das Kind schläft.\n\n")
    Path("old_source.txt").write_text("The child sleeps.\n\n")
    Path("corrections").mkdir()
    log = Suggestions("corrections").log("key")
    for source, target in zip(read_lines("train.en"), read_lines("train.de"), strict=True):
        log.add(source, target, Direction("en", "de"))


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
            text = Path(f"{ours}.{'en' if end == 'en' else 'de'}").read_text()
            if ours != "train":
                text, *_ = text.splitlines(keepends=True)
            (data / f"{theirs}.{end}").write_text(text)


# --- Promises of a page ---------------------------------------------------------------------------


def check_alignments(names, printed):
    assert " ||| " in printed and "\nAER 0.0" in printed
    assert names["least_likely"].probability < 0.5
    page = Path("page.html").read_text()
    assert names["explanation"].source in page
    assert "A young boy in a red shirt is jumping over a small fence." not in page


def check_architecture(names, printed):
    config = read_json("runs/gated/config.json")
    assert config["architectures"] == ["GatedTransformer"]
    assert Path("runs/gated/gated.py").read_text() == Path("gated.py").read_text()
    with safe_open("runs/gated/model.safetensors", "pt") as weights:
        assert "model.encoder.layers.0.gate.weight" in weights.keys()  # noqa: SIM118
    results = read_json("runs/ablation/table3/results.json")
    assert len(results["runs"]) == 3
    assert "| gated encoder |" in Path("runs/ablation/table3/table.md").read_text()
    assert ", p = " in printed and "signature" in Path("gated.json").read_text()


def check_convert(names, printed):
    assert Path("runs/fast/model.bin").exists() and Path("runs/demo-js").exists()
    assert read_json("runs/opus/config.json")["model_type"] == "vanilla_transformer"


def check_distill(names, printed):
    started = []
    for number in range(4):
        recipe = read_json(f"runs/student {number}/recipe.json")
        started.append(recipe["init_from"])
    assert started == [None, "runs/teacher", None, None]
    lines = read_lines("runs/student 2/distillation/corpora/corpus-0.tsv")
    assert {line.split("\t")[0] for line in lines} <= {"A man.", "A dog."}
    assert len(read_lines("back.tsv")) == 2


def check_documents(names, printed):
    project = Path("project.de.sdlxliff").read_text()
    assert "<source>Dogs.</source><target state=" in project
    assert "#, fuzzy" in Path("messages.de.po").read_text()
    table = Path("shop.de.csv").read_text()
    assert re.fullmatch(r'id,name,description\n"a1",.+,".+"\n', table) and "Dogs" not in table
    translated = Path("page.de.html").read_text()
    assert re.fullmatch(r"<p>.*<b>.*</b>.*</p>\n", translated, re.DOTALL)
    assert "dogs" not in translated
    assert printed.splitlines()[-1] == "<p>zwei <b>Hunde</b> schlafen.</p>"
    sentences = [Sentence("Two dogs run.", "", ()), Sentence("A man.", "", ())]
    (first, second) = names["translate_by_ctranslate2"](sentences)
    assert first.text != second.text and second.text


def check_memory(names, printed):
    assert Path("page.de.md").read_text().startswith("Ein Hund!\n\n")
    assert "Der Hund rennt. 1.0" in printed


def check_evaluate(names, printed):
    shown = blocks(page_of("evaluate"), "text")[0]
    signatures = [line.split("  ")[1] for line in shown.splitlines() if "  " in line]
    constraints = (ROOT / "constraints.txt").read_text()
    (pinned,) = re.findall(r"^sacrebleu==(.+)$", constraints, re.MULTILINE)
    assert len(signatures) == 2
    for signature in signatures:
        current = f"version:{sacrebleu.__version__}"
        assert signature.replace(f"version:{pinned}", current) in printed
    assert "±: half of the 95 % confidence interval" in printed and ", p = " in printed


def check_localize(names, printed):
    counts = {"train": 50, "validation": 5, "test": 5}
    for name, count in counts.items():
        assert len(read_lines(f"{name}.de")) == count
    written = Path("new.de.po").read_text()
    assert 'msgstr "Der Hund."' in written
    assert "#, fuzzy" in written.split('msgid "Open %s"')[0].splitlines()[-1]
    assert Path("report.html").exists()
    assert ", p = " in printed and printed.count("Serving ") == 3


def check_new_language(names, printed):
    config = read_json("runs/table-opus-mt-en-sla/tokenizer_config.json")
    assert config["directions"] == [["en", "hsb"]]
    assert Path("back.tsv").read_text().startswith("<BT> ")
    vocab_size = read_json("runs/final/config.json")["vocab_size"]
    assert vocab_size == 285, "NLLB's and the tag"
    assert ", p = " in printed


def check_pocket(names, printed):
    folder = Path("runs/pocket-bergamot")
    assert (folder / "translate.cjs").exists() and (folder / "lex.bin").stat().st_size
    assert Path("runs/pocket-ct2/vmap.txt").exists()
    assert "BLEU 100.00" in printed and ", p = " in printed


def check_scores(names, printed):
    row = json.loads(read_lines("scores.jsonl")[0])
    first = re.search(r"^-\d+\.\d+$", printed, re.MULTILINE)[0]
    assert float(first) == pytest.approx(row["log_probability"], abs=1e-5)
    assert names["least_likely"]["log_probability"] < 0
    assert 0 <= names["answer"]["confidence"] <= 1
    assert "\nplain " in printed and Path("runs/mine/stress_tables/test.json").is_file()


def check_training(names, printed):
    page = page_of("train_on_your_own_data").read_text()
    table = re.search(r"\| in `output_dir`.*?\n\n", page, re.DOTALL)[0]
    promised = set(re.findall(r"`([\w.]+)/?`", table))
    promised -= {"output_dir", "ema"}  # the moving average is optional
    assert promised <= {path.name for path in Path("runs/mine").iterdir()}
    assert "Nothing has been written." in printed and "BLEU" in printed
    assert Path("runs/mean/model.safetensors").exists()
    last = json.loads(read_lines(names["folder"] / "metrics.jsonl")[-1])
    assert {"bleu", "chrf", "validation_loss"} <= last.keys()


def check_first_translation(names, _):
    readme = page_of("README").read_text()
    calls = re.findall(r'^translate\("(.+)"\)  # (.+)$', readme, re.MULTILINE)
    ((text, answer),) = calls
    assert str(names["translate"](text)) == answer
    home = page_of("index").read_text()
    assert f'translate("{text}")\n' in home and f"The answer is `{answer}`" in home


def check_readme(names, printed):
    check_first_translation(names, printed)
    readme = page_of("README").read_text()
    promised = re.search(r"skip_special_tokens=True\)  # (.+)", readme)[1]
    assert names["outputs"].loss < 1
    tokens = names["model"].generate(names["batch"]["input_ids"])
    answer = names["tokenizer"].batch_decode(tokens, skip_special_tokens=True)
    assert str(answer) == promised


def prints(text):
    """Return the check that the page prints a text."""
    return lambda _, printed: printed.index(text)


def has_memory(names, _):
    names["memory"].layers[0].keys[:, 10]


Page = tuple[int, Callable | None, Callable[[dict[str, Any], str], None] | None]
# Each page: the number of its commands that run, the preparation, and the check.
PAGES: dict[str, Page] = {
    "README": (4, prepare_training, check_readme),
    "alignments": (6, prepare_alignments, check_alignments),
    "change_the_architecture": (6, prepare_architecture, check_architecture),
    "convert": (3, prepare_convert, check_convert),
    "decoder_only_and_encoder_only": (0, None, prints("Where is the ")),
    "decoding": (0, None, None),
    "distill": (5, prepare_distill, check_distill),
    "documents": (3, prepare_documents, check_documents),
    "evaluate": (6, prepare_evaluate, check_evaluate),
    "index": (0, None, check_first_translation),
    "fine_tune": (1, prepare_marian, lambda *_: Path("runs/tuned/model.safetensors").stat()),
    "localize_software": (10, prepare_localize, check_localize),
    "long_sequences": (0, None, has_memory),
    "many_languages": (3, prepare_languages, prints("fr-de")),
    "memory": (8, prepare_memory, check_memory),
    "new_language": (8, prepare_new_language, check_new_language),
    "pocket_model": (9, prepare_pocket, check_pocket),
    "quickstart": (5, prepare_training, None),
    "reranking": (5, prepare_reranking, None),
    "scores": (6, prepare_scores, check_scores),
    "serve": (8, prepare_serve, prints("Serving ")),
    "terms_and_markup": (4, prepare_terms, lambda *_: Path("text.de").read_text()[0]),
    "train_on_your_own_data": (6, prepare_training_with_pictures, check_training),
    "translate": (8, prepare_translate, None),
    "use_from_transformers": (0, None, prints("trainable params")),
}


def runs_here(line):
    if not line.startswith(("vanilla-transformer ", "python examples/")):
        return False
    return not any(text in line for text in NOT_RUN)


# Pages whose commands take long
LONG = {"convert", "localize_software", "distill", "new_language", "many_languages"}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
@pytest.mark.parametrize("name", sample(PAGES, *(PAGES.keys() - LONG)))
def test_page_runs_from_top_to_bottom(name, workspace, monkeypatch, capsys):
    expected, prepare, check = PAGES[name]
    if prepare is not None:
        prepare(monkeypatch)
    names, ran = {}, 0
    page = page_of(name).read_text()
    for language, block in re.findall(r"^```(bash|python)\n(.*?)^```", page, BLOCKS):
        if language == "bash":
            for line in filter(runs_here, block.replace("\\\n", " ").splitlines()):
                line = line.replace("--budget 3000 --seeds 3", "--budget 1")
                run_command(line, monkeypatch)
                ran += 1
        elif name != "change_the_architecture":  # whose class is in a file
            # Compiling takes minutes.
            exec(block.replace("compile=True", "compile=False"), names)
    sys.modules.pop("gated", None)
    assert ran >= expected, "some commands of the page do not run any more"
    if check is not None:
        check(names, capsys.readouterr().out)
