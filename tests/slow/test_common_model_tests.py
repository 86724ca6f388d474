"""Our classes pass transformers' own common tests (`tests/test_modeling_common.py` and others).

The tests are not installed with the library. Pip downloads the source distribution of the installed
version into `build/` once. It lacks some files that those tests import; `STAND_INS` replaces them.
`GenerationTesterMixin` is among them: `tests/integration/test_generation_vanilla_transformer.py`
covers generation.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers

REPOSITORY = Path(__file__).parents[2]
SOURCES = REPOSITORY / "build" / f"transformers-{transformers.__version__}-tests"

# Files of the library's repository that the common tests import and that its source distribution
# lacks.
STAND_INS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/__init__.py": "",
    "utils/test_configuration_utils.py": (
        "config_common_kwargs = {'return_dict': False, 'num_labels': 5}\n"
    ),
    "distributed_testing_utils.py": "run_distributed = None\n",
}

# Message of a skipped test of the library → why the test does not apply. No other test may be
# skipped.
NOT_FOR_THIS_ARCHITECTURE = {
    "RoPE": (
        "Positions are added to the embeddings (section 3.5), not rotated into queries and keys."
    ),
    "sparse experts|MoE|router_logits|grouped_mm": (
        "One feed-forward layer for all tokens (section 3.3), no experts."
    ),
    "sliding window": (
        "Each position attends to all positions that its mask admits (section 3.2.3)."
    ),
    "not composite|not a composite|No subconfigs|does not support SDPA": "The model has a single "
    "configuration. (The last text belongs to a test for composite models and is reported for all "
    "others.)",
    "_keep_in_fp32_modules": "No weight must stay in float32.",
    "No conversion found": "Parameter names of checkpoints are the names of the modules.",
    "does not propagate hidden states": "An encoder-decoder returns `encoder_hidden_states` and "
    "`decoder_hidden_states`; Marian's test is skipped too.",
    "does not have position embeddings": "Sinusoids have no rows to resize.",
    "No decoder-only language modeling head": "The model is an encoder-decoder.",
    "No sequence-to-sequence language modeling head": "The model is decoder-only or encoder-only.",
    "not (output|support) (output_)?attentions": (
        "Linear and LSH attention compute no matrix of probabilities."
    ),
    "does not have a TP plan": (
        "LSH attention shares keys with queries; Transformer-XL attention adds a projection."
    ),
    "neither causal_lm_class nor": "Those tests feed a decoder-only model. Our test with two "
    "processes is `test_tensor_parallel_logits_match_single_process`.",
    "need the cache of|Do not take a cache": "Long models have other caches, and an encoder has "
    "none. `tests/integration/test_cached_search.py` covers the old name of the cache.",
    "embeds both sides|expects the target vocabulary": (
        "Explained in `common_model_tests.py`: separate vocabularies."
    ),
}
NOT_ON_EVERY_MACHINE = {
    "requires (multiple )?accelerator|requires MPS": "Needs a GPU, more than one, or Apple's.",
    "requires Flash Attention|requires the kernels library": "Needs an NVIDIA GPU and its kernels.",
    "requires deepspeed": "Needs DeepSpeed.",
}


def fetch_library_tests():
    """Put the library's `tests` into `SOURCES`, unless they are there already."""
    if (SOURCES / "tests" / "test_modeling_common.py").exists():
        return
    requirement = f"transformers=={transformers.__version__}"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-deps", "--no-binary", ":all:", "--dest", folder, requirement]
        command = [sys.executable, "-m", "pip", "download", *options]
        download = subprocess.run(command, capture_output=True, text=True)
        if download.returncode != 0:
            reason = f"pip could not fetch the source distribution of {requirement}"
            pytest.skip(f"{reason}: {download.stderr[-500:]}")
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
            for member in archive.getmembers():
                _, _, name = member.name.partition("/")
                if name.startswith("tests/") and member.isfile():
                    target = SOURCES / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())


def write_stand_ins():
    for name, text in STAND_INS.items():
        file = SOURCES / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def verdict_and_reasons(testcase):
    """Return "failed" with the messages, "skipped" (in whole or in part) with the reasons, or
    "passed".
    """
    for verdict, elements in (("failed", ("failure", "error")), ("skipped", ("skipped",))):
        reasons = []
        for name in elements:
            reasons += [element.get("message") for element in testcase.findall(name)]
        if reasons:
            return verdict, reasons
    return "passed", []


def run_library_tests(report):
    """Run `common_model_tests.py` in a separate pytest process, where `tests` is the library's
    package.
    """
    tests = Path(__file__).with_name("common_model_tests.py")
    # Our `tests` folder and our pytest settings must not interfere.
    options = ["-c", os.devnull, "--noconftest", "-p", "no:cacheprovider"]
    options += ["--import-mode", "importlib"]
    command = [sys.executable, "-m", "pytest", *options, "--junitxml", report, tests]
    paths = f"{SOURCES}{os.pathsep}{REPOSITORY}"
    environment = os.environ | {"PYTHONPATH": paths, "RUN_SLOW": "1", "HF_HUB_OFFLINE": "1"}
    options = {"cwd": SOURCES, "env": environment, "capture_output": True, "text": True}
    run = subprocess.run(command, **options)
    messages = run.stdout[-5000:] + run.stderr[-5000:]
    assert run.returncode in (0, 1), messages  # 1: some tests failed


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return, for each class of `common_model_tests.py`, the verdict on each test with its
    reasons.
    """
    fetch_library_tests()
    write_stand_ins()
    report = tmp_path_factory.mktemp("common") / "report.xml"
    run_library_tests(report)
    results = {}
    for testcase in ElementTree.parse(report).iter("testcase"):
        family = testcase.get("classname").rpartition(".")[2]
        of_family = results.setdefault(family, {})
        of_family[testcase.get("name")] = verdict_and_reasons(testcase)
    return results


def reasons_of(verdict, results_of_family):
    """Return the reasons of every test with that verdict, by its name."""
    reasons_of_tests = {}
    for name, (verdict_of_test, reasons) in results_of_family.items():
        if verdict_of_test == verdict:
            reasons_of_tests[name] = reasons
    return reasons_of_tests


FAMILIES = ["VanillaTransformerTest", "OtherArchitectureTest", "DecoderOnlyTest"]
FAMILIES += ["EncoderOnlyTest", "LinearTest", "LshTest", "TransfoXLTest"]
FAMILIES += ["LinearDecoderTest", "LshDecoderTest", "TransfoXLDecoderTest"]
our_families = pytest.mark.parametrize("family", FAMILIES)


@our_families
def test_common_tests_pass_for_every_family(results, family):
    assert reasons_of("failed", results[family]) == {}
    assert len(reasons_of("passed", results[family])) > 70


def test_common_tests_of_marian_pass_for_ours(results):
    marian = reasons_of("passed", results["MarianTest"]).keys()
    assert len(marian) > 100
    assert marian - reasons_of("passed", results["VanillaTransformerTest"]).keys() == set()


@our_families
def test_common_tests_are_skipped_for_a_known_reason(results, family):
    known = re.compile("|".join([*NOT_FOR_THIS_ARCHITECTURE, *NOT_ON_EVERY_MACHINE]))
    for name, reasons in reasons_of("skipped", results[family]).items():
        assert all(map(known.search, reasons)), (name, reasons)


def test_common_tests_give_every_known_reason(results):
    reasons = []
    for family in FAMILIES:
        reasons += chain(*reasons_of("skipped", results[family]).values())
    for text in NOT_FOR_THIS_ARCHITECTURE:
        assert any(re.search(text, reason) for reason in reasons), text
