"""Train with `VanillaSeq2SeqTrainer`: `Seq2SeqTrainer` with the paper's batches and learning rate.

    python examples/token_budget_trainer.py --model runs/demo --output_dir runs/continued \
        --train_source train.en --train_target train.de --max_tokens 4000 \
        --warmup_steps 400 --max_steps 2000

A batch holds pairs of similar length, up to `--max_tokens` padded tokens on each side. The learning
rate is equation 3 of the paper times `--learning_rate_scale`. All flags of
`Seq2SeqTrainingArguments` work. Use `accelerate launch` on several GPUs, and
`torchrun --nproc_per_node 2` for several CPU processes.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
)

import vanilla_transformer  # noqa: F401  registers the model with the Auto classes
from vanilla_transformer.training.seq2seq_trainer import (
    TokenBudgetTrainingArguments,
    VanillaSeq2SeqTrainer,
    encoded_dataset,
)


@dataclass
class Arguments:
    """The initial model, and text files with one sentence per line."""

    model: str = field(metadata={"help": "Folder or Hub name of the model."})
    train_source: Path = field(metadata={"help": "Training text, source side."})
    train_target: Path = field(
        metadata={"help": "Training text, target side, aligned line by line."}
    )


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser((Arguments, TokenBudgetTrainingArguments), allow_abbrev=False)
    options, training = parser.parse_args_into_dataclasses(list(words))
    model = AutoModelForSeq2SeqLM.from_pretrained(options.model)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    trainer = VanillaSeq2SeqTrainer(
        model,
        training,
        train_dataset=encoded_dataset(tokenizer, options.train_source, options.train_target),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    result = trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()  # saves the tokenizer as well
    if trainer.is_world_process_zero():
        print(f"Loss {result.training_loss:.3f} after {result.global_step} steps.")


if __name__ == "__main__":
    main(sys.argv[1:])
