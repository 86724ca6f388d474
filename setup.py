"""Metadata of the package, its requirements and its extras."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
REPOSITORY = "https://github.com/vanilla-transformer/vanilla-transformer"
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "vanilla_transformer/__init__.py").read_text(), re.MULTILINE
)
PLOTS = ["matplotlib>=3.10"]
EVALUATION = ["sacremoses>=0.1", "scipy>=1.12"]
PEFT = ["peft>=0.21.2"]
TRACKING = ["tensorboard>=2.18"]
TORCHAO = ["torchao>=0.18"]
CTRANSLATE2 = ["ctranslate2>=4.4"]
ONNX = ["transformers>=5.23", "onnx>=1.20", "onnxscript>=0.6", "onnxruntime>=1.29"]
BABEL = ["babel>=2.14"]
SENTENCEX = ["sentencex>=1.0.11"]
SERVE = [
    *BABEL,
    "fastapi>=0.115",
    "uvicorn>=0.30",
    "prometheus-client>=0.20",
    "python-multipart>=0.0.18",
    *SENTENCEX,
]
CLEANING = [*BABEL, "py3langid>=0.4"]
CORPORA = ["mtdata>=0.5", "opustools>=1.9"]
RAY = ["ray>=2.40"]
PREPARE = ["datatrove>=0.10"]
DOCUMENTS = [
    "lxml>=5.3",
    "markdown-it-py>=4",
    "mdit-py-plugins>=0.5",
    "translate-toolkit>=3.19",
    "fluent.syntax>=0.19",
]
DOCUMENTS += [*BABEL, *SENTENCEX]
OPTIONAL = [
    *PLOTS,
    *EVALUATION,
    *PEFT,
    *TRACKING,
    *CTRANSLATE2,
    *ONNX,
    *SERVE,
    *DOCUMENTS,
    *CLEANING,
    *CORPORA,
    *PREPARE,
]
TESTS = [
    "pytest>=8",
    "pytest-xdist>=3.8",
    "hypothesis>=6.100",
    "parameterized>=0.9",
    "httpx>=0.27",
    "selenium>=4.20",
]
TESTS += ["html5lib>=1.1", "jsonschema>=4.20", "openapi-spec-validator>=0.7.1"]
TESTS += ["libretranslatepy>=2.1.4"]  # a client of the service
TESTS += ["gradio>=6"]  # of the Space
NOTEBOOKS = ["ipykernel>=6.29", "nbclient>=0.10"]
DOCS = ["mkdocs>=1.6", "mkdocs-material>=9.6", "mkdocstrings[python]>=0.30"]

setup(
    name="vanilla-transformer",
    version=VERSION[1],
    description=(
        'The original Transformer ("Attention Is All You Need", 2017) as a Hugging Face '
        "model package"
    ),
    # On the package index, links need the address of the repository.
    long_description=re.sub(
        r"\]\((?!https?:|#)(docs/images/)?",
        lambda match: f"]({REPOSITORY}/{'raw' if match[1] else 'blob'}/main/{match[1] or ''}",
        README,
    ),
    long_description_content_type="text/markdown",
    author="The vanilla-transformer authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    # Recipes and card templates are edited at the root of the repository; the wheel has them inside
    # the package.
    packages=[
        *find_packages(include=["vanilla_transformer", "vanilla_transformer.*"]),
        "vanilla_transformer.recipes",
        "vanilla_transformer.model_card",
    ],
    package_dir={
        "vanilla_transformer.recipes": "recipes",
        "vanilla_transformer.model_card": "model_card",
    },
    package_data={
        "vanilla_transformer": ["py.typed", "data/demo_corpus/*"],
        "vanilla_transformer.extensions.alignments.explanation": ["page.[chj]*"],
        "vanilla_transformer.extensions.conversion": [
            "bergamot_translate.cjs",
            "bergamot_config.yml",
        ],
        "vanilla_transformer.extensions.documents": ["*.yaml"],
        "vanilla_transformer.evaluation.quality_report": ["page.[ch]*"],
        "vanilla_transformer.extensions.serving": ["page.[chj]*"],
        "vanilla_transformer.publishing.space": ["requirements.txt"],
        "vanilla_transformer.recipes": ["*.yaml"],
        "vanilla_transformer.model_card": ["*.yaml", "*.md"],
    },
    install_requires=[
        "torch>=2.11",
        # Tested by `make test-releases` and `make test-newest`; a release that is not is checked
        # when it is used.
        "transformers>=5.12,<6",
        "accelerate>=1.7",
        "tokenizers>=0.22",
        "datasets>=4.0",
        "filelock>=3.30",
        "charset-normalizer>=3",
        "pyarrow>=15",
        "pydantic>=2.12",
        "evaluate>=0.4",
        "safetensors>=0.5",
        "sacrebleu>=2.4",
        "tabulate>=0.9",
        "sentencepiece>=0.2",
        "protobuf>=4.25",  # with which transformers reads models of SentencePiece
    ],
    extras_require={
        "plots": PLOTS,
        "evaluation": EVALUATION,
        "peft": PEFT,
        "tracking": TRACKING,
        "int8": TORCHAO,
        "ctranslate2": CTRANSLATE2,
        "onnx": ONNX,
        "serve": SERVE,
        "documents": DOCUMENTS,
        "ray": RAY,
        "prepare": PREPARE,
        "cleaning": CLEANING,
        "corpora": CORPORA,
        "docs": DOCS,
        "test": [*TESTS, *OPTIONAL],
        "dev": [*TESTS, *OPTIONAL, *DOCS, *NOTEBOOKS, "codespell", "ruff", "mypy", "types-PyYAML"],
    },
    entry_points={"console_scripts": ["vanilla-transformer = vanilla_transformer.cli:main"]},
    keywords=[
        "transformer",
        "machine translation",
        "attention is all you need",
        "hugging face",
        "seq2seq",
        "fine-tuning",
        "marian",
        "fairseq",
    ],
    url=REPOSITORY,
    project_urls={
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
        "Documentation": f"{REPOSITORY}/tree/main/docs",
        "Issues": f"{REPOSITORY}/issues",
        "Paper": "https://arxiv.org/abs/1706.03762",
        "Source": REPOSITORY,
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
)
