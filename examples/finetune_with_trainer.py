"""Fine-tune a model on text files with `Seq2SeqTrainer` of transformers and compute BLEU.

    python examples/finetune_with_trainer.py --model runs/demo --output_dir runs/finetuned \
        --train_source train.en --train_target train.de \
        --validation_source valid.en --validation_target valid.de \
        --learning_rate 1e-4 --num_train_epochs 3 --label_smoothing_factor 0.1 --eval_strategy epoch

All flags of `Seq2SeqTrainingArguments` work, such as `--gradient_accumulation_steps 4`, `--bf16` or
`--resume_from_checkpoint FOLDER`.
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

import vanilla_transformer  # noqa: F401  registers the model with the Auto classes
from vanilla_transformer.training.seq2seq_trainer import encoded_dataset


@dataclass
class Arguments:
    """The initial model, and text files with one sentence per line."""

    model: str = field(metadata={"help": "Folder or Hub name of the model."})
    train_source: Path = field(metadata={"help": "Training text, source side."})
    train_target: Path = field(
        metadata={"help": "Training text, target side, aligned line by line."}
    )
    validation_source: Path = field(metadata={"help": "Validation text, source side."})
    validation_target: Path = field(metadata={"help": "Validation text, target side."})


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser((Arguments, Seq2SeqTrainingArguments), allow_abbrev=False)
    parser.set_defaults(predict_with_generate=True)
    options, training = parser.parse_args_into_dataclasses(list(words))
    model = AutoModelForSeq2SeqLM.from_pretrained(options.model)
    tokenizer = AutoTokenizer.from_pretrained(options.model)

    def compute_bleu(prediction: EvalPrediction) -> dict[str, Any]:
        def decode(ids: Any) -> list[str]:
            ids[ids < 0] = tokenizer.pad_token_id  # Trainer pads with -100
            return tokenizer.batch_decode(ids, skip_special_tokens=True)

        return {
            "bleu": sacrebleu.corpus_bleu(
                decode(prediction.predictions), [decode(prediction.label_ids)]
            ).score
        }

    trainer = Seq2SeqTrainer(
        model,
        training,
        train_dataset=encoded_dataset(tokenizer, options.train_source, options.train_target),
        eval_dataset=encoded_dataset(
            tokenizer, options.validation_source, options.validation_target
        ),
        # With the model it adds decoder_input_ids, which label smoothing needs.
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        compute_metrics=compute_bleu,
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    print(trainer.evaluate())
    trainer.save_model()  # saves the tokenizer as well


if __name__ == "__main__":
    main(sys.argv[1:])
