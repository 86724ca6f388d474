"""References of an untrusted folder to code: every kind that transformers follows is found before
anything runs.
"""

import json
import subprocess

import pytest

from tests.publishable import change_json, failed
from vanilla_transformer.publishing import checks
from vanilla_transformer.publishing.staging import foreign_code

EVIL = "evil.py"
CODE = "open('ran', 'w')\n"


def set_values(name, **values):
    return lambda folder: change_json(folder / name, **values)


def change_one_entry(folder):
    names = json.loads((folder / "config.json").read_text())["auto_map"]
    change_json(folder / "config.json", auto_map=names | {"AutoModel": "evil.Model"})


def add_generation_code(folder):
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(CODE)


ALL_MAPPED = {"AutoConfig": "evil.Config", "AutoModelForSeq2SeqLM": "evil.Model"}
NESTED = {"auto_map": {"AutoConfig": "evil.C"}}
TOKENIZER = {"AutoTokenizer": [None, "evil.Tokenizer"]}
PIPELINES = {"translation": {"impl": "evil.Pipeline", "pt": []}}
PROCESSOR = {"AutoProcessor": "evil.P"}
# Kind of reference → (how to add it, words of the finding).
INSIDE = {
    "another auto_map": (set_values("config.json", auto_map=ALL_MAPPED), "config.json (auto_map: "),
    "one entry of auto_map": (change_one_entry, "evil.Model"),
    "a nested auto_map": (set_values("config.json", encoder=NESTED), "evil.C"),
    "an added tokenizer": (
        set_values("tokenizer_config.json", auto_map=TOKENIZER),
        "tokenizer_config.json (auto_map: ",
    ),
    "a pipeline": (set_values("config.json", custom_pipelines=PIPELINES), "custom_pipelines"),
    "a processor": (
        set_values("processor_config.json", auto_map=PROCESSOR),
        "processor_config",
    ),
    "a preprocessor": (
        set_values("preprocessor_config.json", auto_map=PROCESSOR),
        "preprocessor",
    ),
    "a versioned config": (
        set_values("config.5.0.0.json", auto_map=ALL_MAPPED),
        "config.5.0.0.json",
    ),
    "a generation config": (
        set_values("generation_config.json", auto_map=ALL_MAPPED),
        "generation_config.json",
    ),
    "another model type": (set_values("config.json", model_type="evil"), "model_type: 'evil'"),
    "custom_generate": (add_generation_code, "custom_generate/"),
    "an unknown module": (lambda folder: (folder / "setup.py").write_text(CODE), "setup.py"),
}
OUTSIDE = {
    "another repository": (
        set_values("config.json", auto_map={"AutoConfig": "user/evil--c.C"}),
        "user/evil--c.C",
    ),
    "a repository without a user": (
        set_values("config.json", auto_map={"AutoConfig": "evil--c.C"}),
        "evil--c.C",
    ),
    "another folder": (
        set_values("config.json", auto_map={"AutoConfig": "../evil.C"}),
        "../evil.C",
    ),
    "a kernel": (set_values("config.json", attn_implementation="user/kernel"), "user/kernel"),
    "kernels of parts": (
        set_values("config.json", _attn_implementation={"encoder": "user/kernel"}),
        "user/kernel",
    ),
    "an adapter": (
        set_values("adapter_config.json", base_model_name_or_path="user/evil"),
        "adapter_config.json",
    ),
}


@pytest.mark.parametrize("kind", INSIDE | OUTSIDE)
def test_check_folder_runs_only_trusted_code(kind, folder, without_new_process):
    (folder / EVIL).write_text(CODE)
    add, said = (INSIDE | OUTSIDE)[kind]
    add(folder)
    assert said in failed(folder)["code"]
    assert not without_new_process, "nothing of the folder may run"
    problem = failed(folder, trust_remote_code=True).get("code", "")
    if kind in INSIDE:
        assert not problem and without_new_process == [folder]
    else:
        assert said in problem and "from elsewhere" in problem and not without_new_process


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "\udcff"])
def test_check_folder_refuses_unreadable_json(text, folder, without_new_process):
    (folder / "processor_config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert "processor_config.json must be JSON" in failed(folder)["code"]
    assert not without_new_process


def test_foreign_code_accepts_token_names_and_records_of_training(folder):
    (folder / "vocab.json").write_text(json.dumps({"auto_map": 1, "custom_pipelines": 2}))
    (folder / "recipe.json").write_text(json.dumps({"attn_implementation": "sdpa"}))
    assert foreign_code(folder) == []


def test_check_folder_hides_secrets_from_the_new_process(folder, monkeypatch):
    environments = []

    def run(command, **options):
        environments.append(options["env"])
        return subprocess.CompletedProcess(command, 1, "", "stopped")

    names = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY"]
    for name in (*names, "https_proxy", "HF_TOKEN_PATH"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setattr(checks.subprocess, "run", run)
    checks.check_folder(folder)
    (environment,) = environments
    assert "secret" not in environment.values()
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["HOME"] == environment["HF_HOME"] != str(checks.Path.home())
