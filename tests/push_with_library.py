"""Push models with `push_to_hub` of transformers, and print JSON.

python push_with_library.py model FOLDER NAME < sentences.json
python push_with_library.py variants FOLDER NAMESPACE
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)

import vanilla_transformer  # noqa: F401


def push_model(folder, name):
    """Push a model, and return what it is and translates when this package loads it again."""
    sentences = json.load(sys.stdin)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model.config.push_to_hub(name)
    model.push_to_hub(name, commit_message="the model")
    tokenizer.push_to_hub(name)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(name)
    weights = zip(model.parameters(), loaded.parameters(), strict=True)
    return {
        "same weights": all(torch.equal(pushed, read) for pushed, read in weights),
        "config": type(AutoConfig.from_pretrained(name)).__module__,
        "pipeline": _translations(name, sentences),
        "trainer": _push_with_trainer(model, tokenizer, sentences, f"{name}-tuned"),
    }


def _push_with_trainer(model, tokenizer, sentences, name):
    rows = [tokenizer(text, text_target=text) for text in sentences]
    arguments = Seq2SeqTrainingArguments(
        output_dir="tuned",
        max_steps=1,
        push_to_hub=True,
        hub_model_id=name,
        report_to=[],
        use_cpu=True,
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
    )
    trainer.train()
    trainer.push_to_hub()
    return _translations(name, sentences)


def _translations(name, sentences):
    translate = pipeline("translation", model=name)
    return [answer["translation_text"] for answer in translate(sentences)]


def push_variants(folder, namespace):
    """Push the models in a folder, whose names start with their Auto classes."""
    for path in sorted(Path(folder).iterdir()):
        auto_class = getattr(transformers, path.name.split("-")[0])
        auto_class.from_pretrained(path).push_to_hub(f"{namespace}/{path.name}")


if __name__ == "__main__":
    push = {"model": push_model, "variants": push_variants}[sys.argv[1]]
    json.dump(push(*sys.argv[2:]), sys.stdout)
