"""Programs that run without this package, and print JSON.

python without_package.py tokenizers TEXTS FOLDER ...
python without_package.py marian FOLDER < sentences.json
python without_package.py hub NAME REVISION < sentences.json
python without_package.py variants FOLDER NAMESPACE
"""

import json
import sys
from pathlib import Path

sys.modules["vanilla_transformer"] = None  # importing it is an error now

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer  # noqa: E402


def load_tokenizers(texts, *folders):
    """Print ids, decoded texts and special tokens of the tokenizer of each folder."""
    texts = json.loads(texts)
    for folder in folders:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        ids = tokenizer(texts)["input_ids"]
        special = [tokenizer.pad_token_id, tokenizer.bos_token_id]
        special += [tokenizer.eos_token_id, tokenizer.unk_token_id]
        decoded = tokenizer.batch_decode(ids, skip_special_tokens=True)
        write([ids, decoded, special, tokenizer.model_input_names])


def translate_by_marian(folder):
    """Print the release of transformers and, for one and four beams, the translations of a Marian
    folder.
    """
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(json.load(sys.stdin), padding=True, return_tensors="pt")
    lines = []
    for beams in (1, 4):
        generated = model.generate(**batch, num_beams=beams, max_length=48)
        lines.append(tokenizer.batch_decode(generated, skip_special_tokens=True))
    write([transformers.__version__, lines])


def load_from_hub(name, revision):
    """Load a model from the Hub in every way, and print its translations."""
    sentences = json.load(sys.stdin)
    options = {"revision": revision, "trust_remote_code": True}
    try:
        AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=False)
        refusal = None
    except ValueError as error:
        refusal = str(error)
    config = AutoConfig.from_pretrained(name, **options)
    base = AutoModel.from_pretrained(name, **options)
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **options)
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    generated = tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
    translate = transformers.pipeline("translation", model=name, **options)
    translations = [answer["translation_text"] for answer in translate(sentences)]
    answers = {"refusal": refusal, "classes": [type(config).__name__, type(base).__name__]}
    answers |= {"generate": [text.strip() for text in generated], "pipeline": translations}
    write(answers)


def load_variants(folder, namespace):
    """Print the outputs of models on the Hub that have the names of folders, which start with Auto
    classes.
    """
    answers = {}
    ids = torch.tensor([[5, 6, 7]])
    for path in sorted(Path(folder).iterdir()):
        auto_class = getattr(transformers, path.name.split("-")[0])
        name = f"{namespace}/{path.name}"
        model = auto_class.from_pretrained(name, trust_remote_code=True).eval()
        inputs = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
        output = model(input_ids=ids, **inputs)[0]
        generated = None
        if model.can_generate():
            generated = model.generate(ids, max_new_tokens=4, do_sample=False).tolist()
        answers[path.name] = [type(model).__name__, output.flatten().tolist(), generated]
    write(answers)


def write(answers):
    sys.stdout.write(json.dumps(answers) + "\n")


PROGRAMS = {
    "tokenizers": load_tokenizers,
    "marian": translate_by_marian,
    "hub": load_from_hub,
    "variants": load_variants,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
