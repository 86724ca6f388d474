"""
Fine-tune a model folder on two text files with the library's own `Seq2SeqTrainer`, and score its translations:

    python examples/finetune_with_trainer.py --model runs/demo --output_dir runs/finetuned \
        --train_source train.en --train_target train.de --validation_source valid.en --validation_target valid.de \
        --learning_rate 1e-4 --num_train_epochs 3 --label_smoothing_factor 0.1 --eval_strategy epoch

Every flag of `Seq2SeqTrainingArguments` is one of this script: `--gradient_accumulation_steps 4`, whose loss is that
of the batch four times as large, `--bf16`, `--resume_from_checkpoint FOLDER`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sacrebleu
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EvalPrediction,
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

import vanilla_transformer  # noqa: F401  makes the model known to the Auto classes
from vanilla_transformer.training.seq2seq_trainer import encoded_dataset


@dataclass
class Arguments:
    """The model to begin with, and text files with one sentence a line."""

    model: str = field(metadata={"help": "Folder or Hub name of the model."})
    train_source: Path = field(metadata={"help": "Training text, source side."})
    train_target: Path = field(metadata={"help": "Training text, target side, line by line."})
    validation_source: Path = field(metadata={"help": "Validation text, source side."})
    validation_target: Path = field(metadata={"help": "Validation text, target side."})


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser((Arguments, Seq2SeqTrainingArguments), allow_abbrev=False)
    parser.set_defaults(predict_with_generate=True)
    options, training = parser.parse_args_into_dataclasses(list(words))
    model = AutoModelForSeq2SeqLM.from_pretrained(options.model)
    tokenizer = AutoTokenizer.from_pretrained(options.model)

    def bleu(outcome: EvalPrediction) -> dict[str, Any]:
        def texts(ids: Any) -> list[str]:
            ids[ids < 0] = tokenizer.pad_token_id  # -100 where there is no token
            return tokenizer.batch_decode(ids, skip_special_tokens=True)

        return {"bleu": sacrebleu.corpus_bleu(texts(outcome.predictions), [texts(outcome.label_ids)]).score}

    trainer = Seq2SeqTrainer(
        model,
        training,
        train_dataset=encoded_dataset(tokenizer, options.train_source, options.train_target),
        eval_dataset=encoded_dataset(tokenizer, options.validation_source, options.validation_target),
        # Given the model it adds decoder inputs, which label smoothing needs.
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=bleu,
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    print(trainer.evaluate())
    trainer.save_model()  # the tokenizer with it


if __name__ == "__main__":
    main(sys.argv[1:])
