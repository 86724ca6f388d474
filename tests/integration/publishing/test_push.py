"""Publishing and downloading, by the Hub's real client against a Hub on the loopback address."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from tests.local_hub import READ_ONLY_TOKEN, TOKEN
from tests.publishable import CARDS, add_card
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.publishing import push
from vanilla_transformer.publishing.push import push_folder
from vanilla_transformer.publishing.staging import code_names

HERE = Path(__file__).parents[2]
SCRIPTS = HERE.parents[1] / "scripts"
NAME = "user/tiny"
SENTENCES = ["A man is sleeping.", "Two dogs run."]
COMMAND_LINE = "import sys; from vanilla_transformer.cli import main; sys.exit(main())"
PUBLISHED = {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
PUBLISHED |= {"README.md", ".gitattributes", *code_names(Path("of the paper's model"))}


def run(hub, tmp_path, *command, offline=False, **options):
    """A process of its own, since the library reads where the Hub is as it is imported."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_CACHE": str(tmp_path / "home" / "hub"),
        "HF_MODULES_CACHE": str(tmp_path / "home" / "modules"),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": str(int(offline)),
    }
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment, cwd=tmp_path, text=True, capture_output=True, **options
    )


def answer_of(process):
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])  # Trainer prints as well


def translations(model, tokenizer):
    translate = TranslationPipeline(model, tokenizer, task="translation")
    return [answer["translation_text"] for answer in translate(SENTENCES)]


def test_a_published_model_loads_in_every_way_without_this_package(folder, hub, tmp_path, tiny_model, tiny_tokenizer):
    (folder / "metrics.jsonl").touch()
    facts = CARDS / "demo.yaml"
    pushed = run(hub, tmp_path, SCRIPTS / "push_to_hub.py", folder, NAME, "--facts", facts)
    assert pushed.returncode == 0, pushed.stderr
    assert f"Published: {hub.url}/{NAME}/commit/" in pushed.stdout
    assert hub.files(NAME).keys() == PUBLISHED
    assert f'model="{NAME}"' in hub.files(NAME)["README.md"].decode()
    first = hub.repositories[NAME].references["main"]

    expected = translations(tiny_model, tiny_tokenizer)
    hub.repositories[NAME].add("main", {"README.md": b"not the model any more"}, "a later commit")
    ask = {"input": json.dumps(SENTENCES)}
    found = answer_of(run(hub, tmp_path, HERE / "as_others_do.py", NAME, first, **ask))
    assert "trust_remote_code" in found["refusal"]
    assert found["classes"] == ["VanillaTransformerConfig", "VanillaTransformerModel"]
    assert found["generate"] == found["pipeline"] == expected

    requests = len(hub.requests)
    offline = answer_of(run(hub, tmp_path, HERE / "as_others_do.py", NAME, first, offline=True, **ask))
    assert offline["pipeline"] == expected and len(hub.requests) == requests


def test_the_librarys_own_methods_publish_models_that_stand_alone(folder, hub, tmp_path, tiny_model, tiny_tokenizer):
    ask = {"input": json.dumps(SENTENCES)}
    found = answer_of(run(hub, tmp_path, HERE / "as_owners_do.py", folder, NAME, **ask))
    assert found["same weights"] and found["config"] == "vanilla_transformer.configuration_vanilla_transformer"
    assert found["pipeline"] == translations(tiny_model, tiny_tokenizer)
    assert hub.files(NAME).keys() >= PUBLISHED
    tuned = answer_of(run(hub, tmp_path, HERE / "as_others_do.py", f"{NAME}-tuned", "main", **ask))
    assert tuned["pipeline"] == tuned["generate"] == found["trainer"]


def test_mistakes_with_a_repository_cost_one_line(hub, tmp_path):
    """There is none; there is no network, and it is not in the cache."""
    for offline, said in ((False, "user/none"), (True, "offline")):
        ended = run(hub, tmp_path, "-c", COMMAND_LINE, "translate", "user/none", "A man.", offline=offline)
        assert ended.returncode == 2 and said in ended.stderr
        assert ended.stderr.count("error: ") == 1 and "Traceback" not in ended.stderr


@pytest.fixture
def near_hub(hub, monkeypatch):
    """The client of this process talks to the local Hub."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


@pytest.mark.slow
def test_the_page_on_publishing_runs_from_top_to_bottom(folder, near_hub, tmp_path, monkeypatch):
    page = (HERE.parents[1] / "docs" / "publish.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    folder.rename("runs/mine")
    Path("facts.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    Path("test.en").write_text("A man is sleeping.\n")
    Path("test.de").write_text("Ein Mann schläft.\n")
    for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            assert main(shlex.split(line)[1:]) == 0
    card = near_hub.files("user/name")["README.md"].decode()
    assert "| our sentences | cc-by-4.0 |" in card and "our test set" in card


@pytest.fixture
def in_this_process(near_hub, monkeypatch):
    """The client of this process talks to the local Hub, and checks are taken as passed."""
    monkeypatch.setattr(push, "check_folder", lambda folder, trust_remote_code: [])
    return near_hub


def test_pushing_again_replaces_what_is_there_in_one_commit(folder, in_this_process):
    push_folder(folder, NAME, token=TOKEN)
    repository = in_this_process.repositories[NAME]
    old = repository.references["main"]
    repository.at("main").files["pytorch_model.bin"] = b"from before"
    (folder / "LICENSE").write_text("free")
    push_folder(add_card(folder), NAME, token=TOKEN, message="better")
    assert in_this_process.files(NAME).keys() == PUBLISHED | {"LICENSE"}
    assert len(repository.commits) == 3 and repository.at("main").message == "better"
    assert "LICENSE" not in in_this_process.files(NAME, old), "an older revision stays as it was"


def test_a_branch_and_a_private_repository(folder, in_this_process):
    push_folder(folder, NAME, token=TOKEN, private=True, revision="trial")
    assert in_this_process.repositories[NAME].private
    assert in_this_process.files(NAME, "trial").keys() == PUBLISHED
    assert in_this_process.files(NAME).keys() == {".gitattributes"}


@pytest.mark.parametrize(
    ("token", "name", "message"),
    [("hf_wrong", NAME, r"does not let you write to user/tiny \(401\)"),
     (READ_ONLY_TOKEN, NAME, r"does not let you write to user/tiny \(403\)"),
     (TOKEN, "somebody/tiny", r"does not let you write to somebody/tiny \(403\)")],
)  # fmt: skip
def test_who_may_not_write_is_told_so(token, name, message, folder, in_this_process):
    with pytest.raises(OSError, match=message):
        push_folder(folder, name, token=token)
    assert not in_this_process.repositories


def test_a_connection_that_breaks_during_an_upload_leaves_the_old_model(folder, in_this_process, monkeypatch):
    push_folder(folder, NAME, token=TOKEN)
    before = in_this_process.files(NAME)
    in_this_process.large_files.clear()
    in_this_process.broken_uploads = 100
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the client tries again, after a while
    (folder / "LICENSE").write_text("free")
    with pytest.raises(OSError, match="connection broke .* Nothing of user/tiny has changed; push again"):
        push_folder(add_card(folder), NAME, token=TOKEN)
    assert in_this_process.files(NAME) is before
    in_this_process.broken_uploads = 0
    push_folder(folder, NAME, token=TOKEN)
    assert "LICENSE" in in_this_process.files(NAME)


def test_without_a_network_nothing_is_lost(folder, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(push, "check_folder", lambda folder, trust_remote_code: [])
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(OSError, match="could not be reached"):
        push_folder(folder, NAME, token=TOKEN)


@pytest.mark.parametrize("name", ["tiny", "user/of/tiny", "user/ti ny", "user/-tiny"])
def test_a_name_that_is_none_is_refused(name, folder):
    with pytest.raises(ValueError, match="[Rr]epo"):
        push_folder(folder, name)


def test_nothing_is_sent_of_a_folder_that_fails(folder, near_hub, monkeypatch):
    monkeypatch.setattr("vanilla_transformer.publishing.checks._check_in_a_fresh_process", lambda folder: [])
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(ValueError, match=r"fails 1 checks: hashes \(config.json is not the file"):
        push_folder(folder, NAME, token=TOKEN)
    assert not near_hub.requests


def test_a_folder_without_weights_is_not_published(tmp_path, near_hub):
    with pytest.raises(ValueError, match=r"files \(there is no model.safetensors"):
        push_folder(tmp_path, NAME, token=TOKEN)
    assert not near_hub.requests


def test_the_fixture_knows_what_is_not_there(in_this_process):
    with pytest.raises(OSError, match="404"):
        HfApi(token=TOKEN).model_info("user/none")
