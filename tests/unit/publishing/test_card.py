"""The model card shows recorded values and "unknown" for all others."""

import ast
import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard

from vanilla_transformer.cli import main
from vanilla_transformer.errors import UserError
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing.card import hashes_in_card, render_card
from vanilla_transformer.publishing.facts import read_facts
from vanilla_transformer.publishing.run_records import check_record_name
from vanilla_transformer.publishing.staging import publishable_files
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.run_arguments import default_values, flatten

CARDS = Path(__file__).parents[3] / "model_card"
FACTS = sorted(CARDS.glob("*.yaml"))


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


def render(folder, facts="multi30k_en_de.yaml", template="template.md"):
    return render_card(folder, read_facts(CARDS / facts), CARDS / template, version="1.2.3")


VALIDATION = {"step": 1, "minutes": 1.0, "validation_loss": 1.0}
VALIDATION |= {"bleu": 36.0, "bleu_signature": "x"}


def write_metrics(folder, *entries):
    text = "".join(f"{json.dumps(entry)}\n" for entry in entries)
    (folder / "metrics.jsonl").write_text(text)


@pytest.fixture
def write_facts(tmp_path):
    """Return a function that writes the facts of the demo with further lines, and returns their
    path.
    """

    def write(lines, changes=None):
        text = (CARDS / "demo.yaml").read_text()
        for old, new in (changes or {}).items():
            text = text.replace(old, new)
        (tmp_path / "facts.yaml").write_text(text + lines)
        return tmp_path / "facts.yaml"

    return write


def test_render_card_names_a_template_that_is_not_valid(folder, tmp_path):
    (tmp_path / "mine.md").write_text("{% if %}")
    message = "The template .*mine.md must be valid Jinja, but it is not: Expected"
    with pytest.raises(UserError, match=message):
        render(folder, template=tmp_path / "mine.md")


EXAMPLES = ['He said "hi" to me.', "C:\\new", "it's", 'a\tb"', "„Schön“ 日本語"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_render_card_writes_python_that_compiles(folder, example):
    facts = read_facts(CARDS / "multi30k_en_de.yaml") | {"example": example}
    folder = folder.rename(folder.with_name('my "model"'))
    card = render_card(folder, facts, CARDS / "template.md", version="1.2.3")
    blocks = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    assert len(blocks) == 4 and 'revision="marian"' in blocks[0] and "trust" not in blocks[0]
    for block in blocks:
        nodes = ast.walk(ast.parse(block))
        strings = {node.value for node in nodes if isinstance(node, ast.Constant)}
        assert {example, 'my "model"'} <= strings


def test_render_card_shows_the_records_of_training(folder, tiny_model):
    entry = {"step": 1234, "minutes": 5.4, "validation_loss": 1.0}
    entry |= {"bleu": 36.789, "bleu_signature": "nrefs:1|x"}
    unfinished = '{"step": 12'  # by a run that was killed
    (folder / "metrics.jsonl").write_text(f"{json.dumps(entry)}\n{unfinished}")
    (folder / "recipe.json").write_text(json.dumps({"dropout": 0.3}))
    machine = {"hardware": "2 CPU cores", "mixed_precision": "bf16"}
    machine["versions"] = {"torch": "2.13.0"}
    (folder / "machine.json").write_text(json.dumps(machine))
    corpus = {"cleaning": {"read": 1200, "dropped": {"duplicates": 100}, "kept": 1100}}
    corpus["overlap"] = {"test": {"pairs": 50, "sources": 3, "targets": 2, "both": 1}}
    (folder / "corpus.json").write_text(json.dumps(corpus))
    card = render(folder)
    for shown in (
        "| training steps, minutes | 1,234, 5 |",
        "| hardware | 2 CPU cores |\n| mixed precision | bf16 |\n| software | torch 2.13.0 |",
        "1,100 of 1,200 pairs (dropped: duplicates 100).",
        "The training text has 1 of 50 test pairs, 3 sources and 2 targets of them.",
        r"| BLEU | 36.79 | unknown | `nrefs:1\|x` |",
        "```yaml\ndropout: 0.3\n```",
        "beam 4, α = 0.6",
    ):
        assert shown in card.text
    parameters = sum(parameter.numel() for parameter in tiny_model.parameters())
    assert f"| parameters | {parameters:,} |" in card.text
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("bleu", 36.79)
    assert result.metric_args == {"signature": "nrefs:1|x"}
    overlap = {"test": {"pairs": 1, "sources": 1, "targets": 0, "both": 1}}
    corpus = {"cleaning": {"read": 1, "dropped": {}, "kept": 1}, "overlap": overlap}
    (folder / "corpus.json").write_text(json.dumps(corpus))
    text = render(folder).text
    assert "Kept for training: 1 of 1 pair.\n" in text
    assert "The training text has 1 of 1 test pair, 1 source and 0 targets of them." in text


RECORDS = ["corpus.json", "machine.json", "recipe.json", "stress_tables/news.json"]


@pytest.mark.parametrize("name", RECORDS)
def test_render_card_names_a_damaged_record(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(bytes(40))
    with pytest.raises(ValueError, match=rf"{folder / name} must be JSON: "):
        render(folder)


def test_card_of_the_command_has_the_changed_settings_of_the_recipe(folder, tmp_path):
    words = ["recipes/small.yaml", "--train_source", "/home/me/a", "--train_target", "b"]
    words += ["--dropout", "0.25", "--output_dir", str(tmp_path)]
    recipe = flatten(parse_recipe(words))
    (folder / "recipe.json").write_text(json.dumps(recipe))
    assert main(["render-card", str(folder), "--facts", "demo"]) == 0
    text = (folder / "README.md").read_text()
    shown = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    assert (shown["dropout"], shown["train_source"]) == (0.25, "a")
    assert "output_dir" not in shown
    defaults = default_values()
    changed = {name for name, value in recipe.items() if value != defaults.get(name)}
    assert {*shown} == changed - {"output_dir"}
    assert 5 < len(shown) < 30


NO_SCORE = "> **Warning:** No BLEU on held-out text was recorded"
POOR_SCORE = (
    "> **Warning:** Its scores on held-out text are poor: BLEU 3.1 on Multi30k validation set."
)
SCORES = [(None, NO_SCORE), (3.14, POOR_SCORE), (20.0, None)]


@pytest.mark.parametrize(("bleu", "warning"), SCORES)
def test_card_warns_of_poor_scores(folder, bleu, warning):
    values = VALIDATION | {"bleu": bleu}
    entry = {name: value for name, value in values.items() if value is not None}
    write_metrics(folder, entry)
    text = render(folder).text
    assert "Warning" not in text if warning is None else warning in text


def test_card_says_how_to_install_and_what_the_model_is_for(folder, write_facts):
    text = render(folder).text
    assert "`pip install vanilla-transformer`" in text
    assert "`pip install transformers torch`" in text
    use = "Translating text like its training data from English to German"
    assert f"## Intended use\n\n{use}" in text
    facts = "intended_use: Tests alone.\ndatasets: [user/data]\nbase_model: user/model\n"
    card = render(folder, write_facts(facts))
    assert "## Intended use\n\nTests alone.\n\n## How" in card.text
    data = card.data.to_dict()
    assert (data["datasets"], data["base_model"]) == (["user/data"], "user/model")
    demo = render(folder, "demo.yaml")
    assert not {"datasets", "base_model"} & demo.data.to_dict().keys()


def test_render_card_shows_the_records_of_evaluate(folder, tmp_path, capsys):
    """`evaluate --name` records scores with intervals and the worst translations."""
    texts = {"source": "A man is sleeping.\nTwo dogs | run.\n"}
    texts["target"] = "Ein Mann schläft.\nZwei Hunde laufen.\n"
    command = ["evaluate", str(folder), "--name", "two sentences"]
    command += ["--bootstrap_samples", "10"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        command += [f"--{name}", str(tmp_path / name)]
    assert main(command) == 0
    recorded = json.loads((folder / "evaluations" / "two_sentences.json").read_text())
    card = render(folder)
    assert {result.metric_type for result in card.data.eval_results} == {"bleu", "chrf"}
    chrf = recorded["scores"]["chrf"]
    score, margin = round(chrf["score"], 2), round(chrf["margin"], 2)
    assert f"| two sentences | chrF | {score} | {margin} |" in card.text
    assert "Two dogs" not in card.text, "the facts forbid quotes"
    write_metrics(folder, VALIDATION)
    facts = read_facts(CARDS / "demo.yaml") | {"validation_text": "held | out"}
    facts["data"] = [{"name": "ours | theirs", "license": "mit"}]
    quoting = render_card(folder, facts, CARDS / "template.md", version="1")
    for cell in (r"| Two dogs \| run. |", r"| ours \| theirs |", r"| held \| out |"):
        assert cell in quoting.text, "a bar must not end the cell"


def parse(card, tmp_path):
    """Return the metadata of a card as huggingface_hub reads it from a file."""
    card.save(tmp_path / "README.md")
    return ModelCard.load(tmp_path / "README.md").data


def test_render_card_has_one_dataset_entry_for_each_text(folder, write_facts, tmp_path):
    write_metrics(folder, VALIDATION)
    (folder / "evaluations").mkdir()
    for name in ("flickr 2016", "flickr 2017"):
        score = {"score": 37.0, "margin": 1.5, "signature": "y"}
        record = {"name": name, "scores": {"bleu": score, "chrf": score}}
        path = (folder / "evaluations" / name).with_suffix(".json")
        path.write_text(json.dumps(record))
    card = render(folder, write_facts(DATASETS))
    (entry,) = card.data.to_dict()["model-index"]
    results = entry["results"]
    assert [result["dataset"] for result in results] == yaml.safe_load(SHOWN_DATASETS)
    assert [len(result["metrics"]) for result in results] == [1, 2, 2]
    assert "interval_95: unknown" not in card.content
    assert card.content.count("interval_95: 1.5") == 4
    first, *_ = parse(card, tmp_path).eval_results
    assert isinstance(first, EvalResult)
    assert (first.metric_value, first.task_type) == (36.0, "translation")


DATASETS = """evaluation_datasets:
  demo validation set: {type: user/data, config: de-en, split: validation}
  flickr 2016: {type: user/data, split: flickr_2016}
"""
SHOWN_DATASETS = """
- {name: demo validation set, type: user/data, config: de-en, split: validation}
- {name: flickr 2016, type: user/data, config: en-de, split: flickr_2016}
- {name: flickr 2017, type: flickr-2017, config: en-de, split: test}
"""


# Lines that are added → what the refusal says.
WRONG_FACTS = {
    "evaluation_datasets: [user/data]": "`evaluation_datasets`: Input should be a valid dictionary",
    "evaluation_datasets: {a: {type: user/data}}": "`evaluation_datasets.a.split`: Field required",
    "evaluation_datasets: {a: {type: three/part/name, split: test}}": "Repo id must",
    "evaluation_datasets: {a: {type: user/data, split: test, color: red}}": "color`: Extra inputs are not",
    "evaluation_datasets: {a: {type: a/b, split: c}, d: {type: a/b, split: c}}": "each text its own split",
    "evaluation_datasets: {a: {type: a/b, split: c, task_id: ../d}}": "task_id`: String should match",
    "evaluation_datasets: {a: {type: a/b, split: c, metric: chrf}}": "a text with a `metric` a `task_id`",
    "datasets: [three/part/name]": "`datasets`: .*Repo id must .*'three/part/name'",
    "quote_test_text: sometimes": "`quote_test_text`: Input should be a valid boolean",
    "color: red": "`color`: Extra inputs are not permitted",
    "license_name: mine": "`license_name` must name the license where",
    "a: [": "facts.yaml must be YAML",
}
# What is replaced, and by what → what the refusal says.
DEMO_NAME = "name: English-German demo of short sentences"
WRONG_CHANGES = {
    ("example:", "# example:"): "`example`: Field required",
    (DEMO_NAME, "name: 3"): "`name`: Input should be a valid string",
    (
        "license: cc-by-2.0\ndata",
        "license: other\ndata",
    ): "`license_name` must name the license where",
}


@pytest.mark.parametrize("lines", WRONG_FACTS)
def test_read_facts_refuses_wrong_facts(lines, write_facts):
    path = write_facts(f"{lines}\n")
    with pytest.raises(UserError, match=f"The file of facts .*{WRONG_FACTS[lines]}"):
        read_facts(path)


@pytest.mark.parametrize("old, new", WRONG_CHANGES)
def test_read_facts_refuses_wrong_changes(old, new, write_facts):
    path = write_facts("", {old: new})
    with pytest.raises(UserError, match=f"The file of facts .*{WRONG_CHANGES[old, new]}"):
        read_facts(path)


EMISSIONS = """run_id,emissions,region,country_name
first,0.001,quebec,Canada
first,0.0025,quebec,Canada
second,0.0001234,,France
"""


def test_render_card_shows_measured_emissions_in_grams(folder, tmp_path):
    """Of each tracker the last line counts, which has the sum so far."""
    card = render(folder)
    assert "co2_eq_emissions" not in card.data.to_dict() and "CO₂" not in card.text
    (folder / "machine.json").write_text(json.dumps({"hardware": "2 CPU cores"}))
    (folder / "emissions.csv").write_text(EMISSIONS)
    card = render(folder)
    assert parse(card, tmp_path).co2_eq_emissions == {
        "emissions": 2.62,
        "source": "codecarbon",
        "training_type": "pre-training",
        "geographical_location": "quebec, Canada; France",
        "hardware_used": "2 CPU cores",
    }
    assert "| hardware | 2 CPU cores |\n| software |" in card.text
    row = "| CO₂ equivalent (codecarbon) | 2.62 g, quebec, Canada; France |"
    assert f"{row}\n\n## Intended use" in card.text
    (folder / "recipe.json").write_text(json.dumps({"init_from": "user/model"}))
    assert render(folder).data.co2_eq_emissions["training_type"] == "fine-tuning"
    (folder / "emissions.csv").write_text(EMISSIONS.splitlines()[0])
    unfinished = render(folder).data.to_dict()
    assert "co2_eq_emissions" not in unfinished, "the measurement has not ended"


def test_render_card_shows_the_learning_curve(folder):
    assert "Learning curve" not in render(folder).text
    entries = []
    for number in range(1, 41):
        entry = {"step": 100 * number, "minutes": number / 4, "bleu": number}
        entries.append(entry | {"validation_loss": 9 / number})
    last = entries[-1] | {"bleu_signature": "x", "chrf": 50.0, "chrf_signature": "y"}
    moving_average = entries[-1] | {"model": "moving average", "validation_loss": 8.125}
    write_metrics(folder, {"step": 1, "loss": 3.0}, *entries, moving_average, last)
    text = render(folder).text
    row = r"^\| [\d,]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| \S+ \|$"
    rows = re.findall(row, text, re.MULTILINE)
    assert len(rows) == 12 and rows[0] == "| 100 | 0.2 | 9.000 | 1.00 | – |"
    assert rows[-1] == "| 4,000 | 10.0 | 0.225 | 40.00 | 50.00 |"
    assert "learning_curve.png" not in text
    (folder / "learning_curve.png").write_bytes(b"a picture")
    card = render(folder)
    assert "](learning_curve.png)\n" in card.text
    assert "learning_curve.png" in hashes_in_card(card.content)


def test_card_of_a_model_without_records(folder, tmp_path):
    """It has the files, the metadata of the Hub, and "unknown" for the rest."""
    card = render(folder)
    listed = hashes_in_card(card.content)
    assert listed.keys() == {path.name for path in publishable_files(folder)}
    config_hash = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    assert listed["config.json"] == config_hash
    rows = ["hardware | unknown", "software | unknown"]
    for row in (*rows, "training steps, minutes | unknown, unknown"):
        assert f"| {row} |" in card.text
    assert "Kept for training: unknown." in card.text and "training text is unknown" in card.text
    assert card.data.eval_results is None
    data = parse(card, tmp_path).to_dict()
    assert data["pipeline_tag"] == "translation" and data["library_name"] == "transformers"
    assert data["language"] == ["en", "de"]
    assert data["widget"] == [{"text": "A man is sleeping on a bench."}]
    assert (data["license"], data["license_name"]) == ("other", "multi30k-non-commercial")


@pytest.mark.parametrize("path", FACTS, ids=lambda path: path.name)
def test_read_facts_accepts_every_shipped_file(path):
    facts = read_facts(path)
    assert all(value for name, value in facts.items() if name != "quote_test_text")


NAMES = ["test 2016", "wmt-14_de.v2", "परीक्षण", "e\u0301te\u0301", "m²"]


@pytest.mark.parametrize("name", NAMES)
def test_check_record_name_accepts_letters_of_any_script(name):
    check_record_name(name)


@pytest.mark.parametrize("name", ["a/b", "", "a:b", "a\nb"])
def test_check_record_name_refuses_other_signs(name):
    with pytest.raises(ValueError, match="--name may hold letters, digits"):
        check_record_name(name)


def test_render_card_refuses_a_folder_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="must have a config.json"):
        render(tmp_path)


@pytest.mark.parametrize(
    ("code", "language", "variants"),
    [
        ("deu_Latn", "de", ["deu-Latn"]),
        ("zh-Hant", "zh", ["zh-Hant"]),
        ("de-DE", "de", ["de-DE"]),
        ("DEU", "de", None),
        ("ace_Arab", "ace", ["ace-Arab"]),
        ("no", "no", None),
    ],
)
def test_card_names_languages_as_the_hub(folder, write_facts, code, language, variants):
    path = write_facts("", {"target_language: de": f"target_language: {code}"})
    data = render(folder, path).data
    assert (data.language, data.get("language_bcp47")) == (["en", language], variants)


def test_render_card_leaves_an_unknown_language_out(folder, write_facts):
    path = write_facts("", {"target_language: de": "target_language: unknown"})
    assert render(folder, path).data.language == ["en"]


def test_read_facts_asks_for_quotation_marks(write_facts):
    lines = {"data:": "data:\n  - {name: Django, Plone and others, license: x}"}
    with pytest.raises(UserError, match="Plone and others.*Quote values with commas"):
        read_facts(write_facts("", lines))
