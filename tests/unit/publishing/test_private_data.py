"""Nothing private is published: links, access tokens, folders of the user's machine."""

import json
import os
import time

import pytest
import yaml

from tests.publishable import CARDS
from vanilla_transformer.cli import main
from vanilla_transformer.publishing import push
from vanilla_transformer.publishing.card import render_card
from vanilla_transformer.publishing.checks import _check_private_data
from vanilla_transformer.publishing.facts import read_facts
from vanilla_transformer.publishing.staging import publishable_files, stage

TOKEN = "hf_" + "aB3" * 12


@pytest.mark.parametrize("name", ["LICENSE", "model.safetensors", "README.md"])
def test_stage_refuses_a_link_out_of_the_folder(name, folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    message = f"{name} must be a file of the folder, but it is a link out of it"
    with pytest.raises(ValueError, match=message):
        stage(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_stage_follows_links_within_the_folder(folder, tmp_path):
    (folder / "checkpoint-1").mkdir()
    (folder / "model.safetensors").rename(folder / "checkpoint-1" / "model.safetensors")
    (folder / "model.safetensors").symlink_to("checkpoint-1/model.safetensors")
    (tmp_path / "link").symlink_to(folder)
    staged = stage(tmp_path / "link", tmp_path / "copy")
    assert (staged / "model.safetensors").stat().st_size > 1000


def test_render_card_shows_no_folders_of_the_machine(folder):
    recipe = {
        "train_source": "/home/alice/corpus/train.en",
        "train_target": ["~/corpus/train.de", "../alice/more.de"],
        "corpora": {"news": {"source": "file:///home/alice/news.en", "weight": 2}},
        "validation_source": "data/valid.en",
        "dataset": "user/corpus",
        "output_dir": "/home/alice/runs/mine",
        "cache_dir": "/home/alice/.cache/texts",
        "verify_cache": True,
        "dropout": 0.3,
    }
    (folder / "recipe.json").write_text(json.dumps(recipe))
    facts = read_facts(CARDS / "demo.yaml")
    card = render_card(folder, facts, CARDS / "template.md", version="1.2.3")
    for hidden in ("alice", "~/", ".cache", "output_dir", str(folder), str(folder.parent)):
        assert hidden not in card.content
    shown = yaml.safe_load(card.text.split("```yaml\n")[1].split("```")[0])
    assert shown == {
        "train_source": "train.en",
        "train_target": ["train.de", "more.de"],
        "corpora": {"news": {"source": "news.en", "weight": 2}},
        "validation_source": "data/valid.en",
        "dataset": "user/corpus",
        "dropout": 0.3,
    }
    assert f'model="{folder.name}"' in card.text


def test_push_to_hub_reads_the_token_from_a_file(folder, tmp_path, monkeypatch, capsys):
    used = []

    def push_folder(*names, token, **options):
        used.append(token)
        return "url"

    monkeypatch.setattr(push, "push_folder", push_folder)
    command = ["push-to-hub", str(folder), "user/name"]
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert main([*command, "--token_file", str(tmp_path / "token")]) == 0
    assert main(command) == 0
    assert used == [TOKEN, None]
    capsys.readouterr()
    assert main([*command, "--token", TOKEN]) == 2, "other users see the flags of a process"
    assert "token_file" in capsys.readouterr().err
    damage = {b" \n": "must hold a key", b"a\nb": "one access token, got 2", b"\xff": "not UTF-8"}
    for content, said in damage.items():
        (tmp_path / "token").write_bytes(content)
        assert main([*command, "--token_file", str(tmp_path / "token")]) == 2
        assert said in capsys.readouterr().err
    assert main([*command, "--token_file", str(tmp_path / "none")]) == 2


def test_publishable_files_ignores_pipes_and_dangling_links(folder):
    os.mkfifo(folder / "LICENSE")
    (folder / "vocab.json").symlink_to("/nowhere")
    names = {path.name for path in publishable_files(folder)}
    assert not {"LICENSE", "vocab.json"} & names


def test_check_folder_reads_a_long_word_once(folder):
    """Such as an image within a card, as base64."""
    (folder / "README.md").write_text((folder / "README.md").read_text() + "a" * 400_000)
    start = time.process_time()
    _check_private_data(folder)
    assert time.process_time() - start < 5
    (folder / "README.md").write_text(f"{'a' * 400_000}/.cache/b")
    with pytest.raises(ValueError, match="names the folder a+/.cache/b of your machine"):
        _check_private_data(folder)
