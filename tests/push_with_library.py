"""Push a model with `push_to_hub` of transformers, load it again with this package, and print its
translations.

python push_with_library.py FOLDER NAME < sentences.json
"""

import json
import sys

import torch
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


def main(folder, name, sentences):
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    model.config.push_to_hub(name)
    model.push_to_hub(name, commit_message="the model")
    tokenizer.push_to_hub(name)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(name)
    translate = pipeline("translation", model=name)
    return {
        "same weights": all(
            torch.equal(one, other)
            for one, other in zip(model.parameters(), loaded.parameters(), strict=True)
        ),
        "config": type(AutoConfig.from_pretrained(name)).__module__,
        "pipeline": [answer["translation_text"] for answer in translate(sentences)],
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
    translate = pipeline("translation", model=name)
    return [answer["translation_text"] for answer in translate(sentences)]


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2], json.load(sys.stdin)), sys.stdout)
