"""Publish and download with the real client, against a local Hub on the loopback address."""

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import EvalResultEntry, HfApi, constants, parse_eval_result_entries
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel

from tests.local_hub import (
    READ_ONLY_TOKEN,
    TOKEN,
    read_answer,
    run_with_hub,
    use_hub_in_this_process,
)
from tests.publishable import CARDS, add_card
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline, VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks, push
from vanilla_transformer.publishing.push import push_folder
from vanilla_transformer.publishing.run_records import EVALUATIONS, save_record
from vanilla_transformer.publishing.staging import code_names

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
LOAD = [TESTS / "without_package.py", "hub"]
PUSH = [TESTS / "push_with_library.py", "model"]
NAME = "user/tiny"
SENTENCES = ["A man is sleeping.", "Two dogs run."]
PUBLISHED = {"model.safetensors", "config.json", "generation_config.json"}
PUBLISHED |= {"tokenizer.json", "tokenizer_config.json"}
MARIAN = {*PUBLISHED} | {"README.md"}
PUBLISHED |= {"README.md", ".gitattributes", *code_names(Path("of the paper's model"))}


@pytest.fixture(autouse=True)
def _short_comparisons(monkeypatch):
    """Compare few tokens of the Marian form: models with random weights would translate to the
    limit.
    """
    comparison = "vanilla_transformer.extensions.conversion.comparison"
    monkeypatch.setattr(f"{comparison}.MAX_NEW_TOKENS", 12)


def translations(model, tokenizer):
    translate = TranslationPipeline(model, tokenizer, task="translation")
    return [answer["translation_text"] for answer in translate(SENTENCES)]


def test_push_to_hub_publishes_a_model_that_loads_without_this_package(
    folder, hub, tmp_path, tiny_model, tiny_tokenizer
):
    (folder / "metrics.jsonl").touch()
    facts = CARDS / "demo.yaml"
    words = [ROOT / "scripts" / "push_to_hub.py", folder, NAME, "--facts", facts]
    pushed = run_with_hub(hub, tmp_path, *words)
    assert pushed.returncode == 0, pushed.stderr
    assert f"Published: {hub.url}/{NAME}/commit/" in pushed.stdout
    assert hub.files(NAME).keys() == PUBLISHED
    assert f'model="{NAME}"' in hub.files(NAME)["README.md"].decode()
    first = hub.repositories[NAME].references["main"]
    assert hub.files(NAME, "marian").keys() == MARIAN | {".gitattributes"}

    expected = translations(tiny_model, tiny_tokenizer)
    hub.repositories[NAME].add("main", {"README.md": b"replaced"}, "a later commit")
    ask = {"input": json.dumps(SENTENCES)}
    loaded = read_answer(run_with_hub(hub, tmp_path, *LOAD, NAME, first, **ask))
    assert "trust_remote_code" in loaded["refusal"]
    assert loaded["classes"] == ["VanillaTransformerConfig", "VanillaTransformerModel"]
    assert loaded["generate"] == loaded["pipeline"] == expected

    requests = len(hub.requests)
    ask["offline"] = True
    offline = read_answer(run_with_hub(hub, tmp_path, *LOAD, NAME, first, **ask))
    assert offline["pipeline"] == expected and len(hub.requests) == requests


def test_push_to_hub_of_the_library_publishes_models(
    folder, hub, tmp_path, tiny_model, tiny_tokenizer
):
    ask = {"input": json.dumps(SENTENCES)}
    pushed = read_answer(run_with_hub(hub, tmp_path, *PUSH, folder, NAME, **ask))
    assert pushed["same weights"]
    configuration = "vanilla_transformer.configuration_vanilla_transformer"
    assert pushed["config"] == configuration
    assert pushed["pipeline"] == translations(tiny_model, tiny_tokenizer)
    assert hub.files(NAME).keys() >= PUBLISHED
    words = [*LOAD, f"{NAME}-tuned", "main"]
    tuned = read_answer(run_with_hub(hub, tmp_path, *words, **ask))
    assert tuned["pipeline"] == tuned["generate"] == pushed["trainer"]


@pytest.mark.parametrize(("offline", "said"), [(False, "user/none"), (True, "offline")])
def test_translate_answers_a_missing_repository_in_one_line(
    hub, monkeypatch, capsys, offline, said
):
    """The repository does not exist, or it is not cached and there is no network."""
    use_hub_in_this_process(hub, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    assert main(["translate", "user/none", "A man."]) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("error: ") == 1 and "Traceback" not in shown


@pytest.fixture
def local_hub(hub, monkeypatch):
    return use_hub_in_this_process(hub, monkeypatch)


@pytest.fixture
def hub_without_checks(local_hub, monkeypatch):
    """Point the client of this process to the local Hub, and skip the checks."""
    monkeypatch.setattr(push, "check_staged", lambda *_: [checks.CheckResult("all", True, "")])
    return local_hub


def test_push_folder_replaces_the_old_files_in_one_commit(folder, hub_without_checks):
    push_folder(folder, NAME, token=TOKEN)
    repository = hub_without_checks.repositories[NAME]
    old = repository.references["main"]
    repository.at("main").files["pytorch_model.bin"] = b"old"
    (folder / "LICENSE").write_text("Apache")
    push_folder(add_card(folder), NAME, token=TOKEN, message="better")
    assert hub_without_checks.files(NAME).keys() == PUBLISHED | {"LICENSE"}
    assert len(repository.commits) == 5 and repository.at("main").message == "better"
    assert "LICENSE" not in hub_without_checks.files(NAME, old), "an older revision"


def test_push_to_hub_refuses_a_worse_model(folder, hub_without_checks, tmp_path, capsys):
    (tmp_path / "a.en").write_text("\n".join([*SENTENCES, ""]))
    words = ["push-to-hub", str(folder), NAME, "--compare_with", str(folder)]
    words += ["--source", f"{tmp_path}/a.en", "--target", f"{tmp_path}/a.en", "--num_beams", "1"]
    words += ["--max_new_tokens", "8", "--bootstrap_samples", "2"]
    with pytest.raises(SystemExit) as refusal:
        main([*words, "--max_size_ratio", "0.5"])
    reason = "parameters: 1.00 times as much, above 0.5. Nothing has been published."
    assert str(refusal.value) == f"{folder} is worse than {folder}: {reason}"
    assert "- parameters: 1.00 times" in capsys.readouterr().out
    assert not hub_without_checks.repositories and not hub_without_checks.requests

    assert main(words) == 0
    card = hub_without_checks.files(NAME)["README.md"].decode()
    section = card.partition("\n## Comparison with the model before\n")[2]
    assert "| BLEU " in section and "0 of 2 translations changed." in section
    assert "## Comparison" not in (folder / "README.md").read_text()


BENCHMARK = """
evaluation_datasets:
  our test set: {type: user/benchmark, split: test, task_id: en-de, metric: chrf}
"""


def test_push_to_hub_gives_leaderboards_their_scores(folder, hub_without_checks, tmp_path, capsys):
    facts = tmp_path / "facts.yaml"
    facts.write_text((CARDS / "demo.yaml").read_text() + BENCHMARK)
    words = ["push-to-hub", str(folder), NAME, "--facts", str(facts)]
    assert main(words) == 2
    assert "must have a recorded chrf, but 'our test set' has no scores" in capsys.readouterr().err
    assert NAME not in hub_without_checks.repositories
    score = {"score": 61.234, "margin": 1.5, "signature": "chrF2|version:2.6.0"}
    save_record(folder, EVALUATIONS, "our test set", {"scores": {"chrf": score}})
    assert main(words) == 0
    name = ".eval_results/user_benchmark_en-de.yaml"
    files = hub_without_checks.files(NAME)
    (entry,) = parse_eval_result_entries(yaml.safe_load(files[name]))
    benchmark = {"dataset_id": "user/benchmark", "task_id": "en-de"}
    assert entry == EvalResultEntry(**benchmark, value=61.23, notes="chrF2|version:2.6.0")
    facts.write_text((CARDS / "demo.yaml").read_text())
    assert main(words) == 0
    assert name not in hub_without_checks.files(NAME), "the score of an older model"


def test_push_folder_adds_a_marian_model(folder, hub_without_checks, tmp_path):
    """Load it without other code."""
    push_folder(folder, NAME, token=TOKEN)
    files = hub_without_checks.files(NAME, "marian")
    assert files.keys() == MARIAN | {".gitattributes"}
    where = {"revision": "marian", "cache_dir": tmp_path / "cache"}
    model = AutoModelForSeq2SeqLM.from_pretrained(NAME, **where).eval()
    tokenizer = AutoTokenizer.from_pretrained(NAME, **where)
    assert type(model) is MarianMTModel
    ours = VanillaTransformerForConditionalGeneration.from_pretrained(folder).eval()
    search = {"max_length": 30, "length_penalty_type": "power"}
    search["max_new_tokens_beyond_source"] = None
    plain = AutoTokenizer.from_pretrained(folder)
    inputs = plain(SENTENCES, padding=True, return_tensors="pt")
    expected = plain.batch_decode(ours.generate(**inputs, **search), skip_special_tokens=True)
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    tokens = model.generate(**inputs, max_length=30)
    assert tokenizer.batch_decode(tokens, skip_special_tokens=True) == expected
    card = files["README.md"].decode()
    assert "pipeline_tag: translation" in card
    assert "The branch `main` has the card" in card


def test_push_folder_creates_a_private_branch(folder, hub_without_checks):
    push_folder(folder, NAME, token=TOKEN, private=True, revision="trial")
    assert hub_without_checks.repositories[NAME].private
    assert hub_without_checks.files(NAME, "trial").keys() == PUBLISHED
    assert hub_without_checks.files(NAME).keys() == {".gitattributes"}
    references = hub_without_checks.repositories[NAME].references
    assert "marian" not in references, "which is the other form of main"


def test_push_folder_keeps_to_our_form_if_marian_cannot_hold_it(
    hub_without_checks, tiny_tokenizer, tmp_path
):
    model = tiny_model(normalize_before=True)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "pre-norm")
    push_folder(add_card(folder), NAME, token=TOKEN)
    assert [*hub_without_checks.repositories[NAME].references] == ["main"]
    assert "revision=" not in (folder / "README.md").read_text()


def test_push_to_hub_lists_files_of_a_dry_run(folder, local_hub, monkeypatch, capsys):
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])
    (folder / "metrics.jsonl").touch()
    (folder / "training_args.bin").write_bytes(b"pickle")
    (folder / "README.md").unlink()
    facts = ["--facts", str(CARDS / "demo.yaml")]
    assert main(["push-to-hub", str(folder), NAME, "--dry_run", *facts]) == 0
    named, *lines, end = capsys.readouterr().out.splitlines()
    sizes = {}
    for line in lines:
        if " bytes  " in line:
            number, *_, name = line.split()
            sizes[name] = int(number.replace(",", ""))
    other = {f"marian/{name}" for name in MARIAN}
    assert sizes.pop("files") == sum(sizes.values())
    assert {*sizes} == (PUBLISHED - {".gitattributes"}) | other
    size = (folder / "model.safetensors").stat().st_size
    assert sizes["model.safetensors"] == size and sizes["README.md"] > 1000
    assert end == "Nothing has been published." and not local_hub.requests
    assert named.endswith(f"files to publish: {', '.join(sorted({*sizes} - other))}")
    assert "training_args.bin of transformers' Trainer is left out" in lines[0]


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [("hf_wrong", NAME, r"does not let you write to user/tiny \(401\)"),
     (READ_ONLY_TOKEN, NAME, r"does not let you write to user/tiny \(403\)"),
     (TOKEN, "somebody/tiny", r"does not let you write to somebody/tiny \(403\)")],
)  # fmt: skip
def test_push_folder_explains_missing_permissions(token, name, message, folder, hub_without_checks):
    with pytest.raises(OSError, match=message):
        push_folder(folder, name, token=token)
    assert not hub_without_checks.repositories


def test_push_folder_keeps_the_old_model_if_a_connection_breaks(
    folder, hub_without_checks, monkeypatch
):
    push_folder(folder, NAME, token=TOKEN)
    before = hub_without_checks.files(NAME)
    hub_without_checks.large_files.clear()
    hub_without_checks.broken_uploads = 100
    # The client waits before it retries.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    (folder / "LICENSE").write_text("Apache")
    unchanged = "The content of user/tiny has not changed; push again"
    with pytest.raises(OSError, match=f"connection broke .* {unchanged}"):
        push_folder(add_card(folder), NAME, token=TOKEN)
    assert hub_without_checks.files(NAME) is before
    hub_without_checks.broken_uploads = 0
    push_folder(folder, NAME, token=TOKEN)
    assert "LICENSE" in hub_without_checks.files(NAME)


def test_push_folder_without_a_network_says_so(folder, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(push, "check_staged", lambda *_: [checks.CheckResult("all", True, "")])
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(OSError, match="could not be reached"):
        push_folder(folder, NAME, token=TOKEN)


HASHES = r"was not published; it fails 1 checks: hashes \(config.json is not the file"
WRONG = [("config.json", NAME, HASHES)]
WRONG.append(("model.safetensors", NAME, r"files \(model.safetensors is missing"))
for name in ("tiny", "user/of/tiny", "user/ti ny", "user/-tiny"):
    WRONG.append((None, name, "[Rr]epo"))


@pytest.mark.parametrize(("file", "name", "message"), WRONG)
def test_push_folder_uploads_nothing_that_is_wrong(
    file, name, message, folder, local_hub, monkeypatch
):
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])
    if file == "config.json":
        (folder / file).write_text((folder / file).read_text() + " ")
    elif file is not None:
        (folder / file).unlink()
    with pytest.raises(ValueError, match=message):
        push_folder(folder, name, token=TOKEN)
    assert not local_hub.requests


def test_local_hub_answers_404_for_a_missing_repository(hub_without_checks):
    with pytest.raises(OSError, match="404"):
        HfApi(token=TOKEN).model_info("user/none")
