"""A converted model passes the checks before publication."""

from pathlib import Path

from tests.hub_client import fork_checks
from tests.marian_models import MARIAN_SENTENCES, build_marian_tokenizer, marian_model
from vanilla_transformer.extensions.conversion.marian import from_marian
from vanilla_transformer.publishing.card import render_card
from vanilla_transformer.publishing.checks import check_folder, failed_checks
from vanilla_transformer.publishing.facts import read_facts
from vanilla_transformer.utils.file_utils import save_model_folder


def test_from_marian_writes_a_publishable_folder(tmp_path, monkeypatch):
    fork_checks(monkeypatch)
    (tmp_path / "tokenizer").mkdir()
    marian_tokenizer = build_marian_tokenizer(tmp_path / "tokenizer")
    original = marian_model(len(marian_tokenizer))
    save_model_folder(original, marian_tokenizer, tmp_path / "opus")
    from_marian(tmp_path / "opus", tmp_path / "ours", MARIAN_SENTENCES)
    root = Path(__file__).parents[4]
    facts = read_facts(root / "model_card" / "demo.yaml")
    render_card(tmp_path / "ours", facts, root / "model_card" / "template.md", "1").save(
        tmp_path / "ours" / "README.md"
    )
    assert not failed_checks(check_folder(tmp_path / "ours"))
