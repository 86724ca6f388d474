"""The recipes of WMT 2014 read the layout of `wmt/wmt14` on the Hub: a folder of Parquet files a
configuration.
"""

import datasets
import pytest
import yaml

from tests.sweeps import rare
from tests.tiny_runs import ROOT, entries, no_scores
from vanilla_transformer.training.recipe import parse_recipe, read_recipe
from vanilla_transformer.training.trainer import train

SIZES = {
    "d_model": 16,
    "vocab_size": 280,
    "tokens_per_step": 200,
    "max_steps": 2,
    "eval_steps": 2,
    "save_steps": 2,
}
SIZES |= {
    f"{part}_{name}": 1
    for part in ("encoder", "decoder")
    for name in ("layers", "attention_heads", "ffn_dim")
}


@pytest.fixture
def wmt14(corpus, tmp_path, monkeypatch):
    """Write a copy of the dataset with a few pairs, which `datasets` prefers to the Hub's, and go
    to its parent.
    """
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "wmt" / "wmt14"
    configs = []
    for language in ("de", "fr"):
        name = f"{language}-en"
        (root / name).mkdir(parents=True)
        features = datasets.Features(
            {"translation": datasets.Translation(languages=[language, "en"])}
        )
        files = []
        for split, part in (
            ("train", "train"),
            ("validation", "validation"),
            ("test", "validation"),
        ):
            sides = [(corpus / f"{part}.{end}").read_text().splitlines() for end in "ab"]
            rows = [
                {"translation": {"en": source, language: target}}
                for source, target in zip(*sides, strict=True)
            ]
            rows += [{"translation": {"en": "", language: "leer"}}] if split == "train" else []
            shards = 2 if split == "train" else 1
            data = datasets.Dataset.from_list(rows, features=features)
            for index in range(shards):
                path = root / name / f"{split}-{index:05d}-of-{shards:05d}.parquet"
                data.shard(shards, index, contiguous=True).to_parquet(path)
            files.append({"split": split, "path": f"{name}/{split}-*"})
        configs.append({"config_name": name, "data_files": files})
    (root / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': configs})}---\n")
    return root


DE, FR = "wmt14_en_de_base", "wmt14_en_fr_base"


@pytest.mark.parametrize("name", [rare(DE), FR])
def test_recipe_trains_on_a_copy_of_the_dataset(wmt14, tmp_path, name):
    shipped = read_recipe(ROOT / "recipes" / f"{name}.yaml")
    changes = SIZES | {"output_dir": "out", "report_to": None, "mixed_precision": "no"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(shipped | changes))
    folder = train(parse_recipe(["recipe.yaml"]), evaluate=no_scores)
    validations = [entry for entry in entries(folder) if "validation_loss" in entry]
    assert (folder / "model.safetensors").exists() and validations
    report = (folder / "corpus.json").read_text()
    assert '"validation"' in report and '"test"' in report and '"empty": 1' in report
