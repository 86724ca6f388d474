"""A page to try a translation model, on Hugging Face Spaces or on your machine
(`python app.py`).
"""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import gradio as gr
from transformers import pipeline

HERE = Path(__file__).parent
SETTINGS = json.loads((HERE / "space.json").read_text(encoding="utf-8"))
model = str(HERE / "model") if (HERE / "model").is_dir() else SETTINGS["model"]
has_package = find_spec("vanilla_transformer") is not None
options: dict[str, bool | str] = {"split_sentences": True}  # people write paragraphs
if has_package:
    import_module("vanilla_transformer")  # whose pipeline keeps URLs and placeholders
    options["sentence_splitter"] = "simple"  # as of the model's own code
# Otherwise the model carries its code: read it before you trust it.
translate = pipeline("translation", model=model, trust_remote_code=not has_package)


def answer(text: str) -> str:
    """Translate a text, which may have several lines."""
    return translate(text, **options)[0]["translation_text"] if text.strip() else ""


page = gr.Interface(
    answer,
    gr.Textbox(label="Source", lines=3, max_length=5000),
    gr.Textbox(label="Translation", lines=3),
    title=SETTINGS["title"],
    examples=SETTINGS["examples"],
    cache_examples=False,
    flagging_mode="never",
)

if __name__ == "__main__":
    page.launch()
