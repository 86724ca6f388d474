"""Fine-tune low-rank adapters (LoRA) with `peft`, save them, and merge them into a model folder.

    pip install '.[peft]'
    python examples/lora.py --model runs/demo --output_dir runs/lora \
        --train_source train.en --train_target train.de --learning_rate 1e-3 --num_train_epochs 3

The adapters, a few percent of the weights, are saved in `runs/lora`. The merged model in
`runs/lora/merged` loads without `peft`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

import vanilla_transformer  # noqa: F401  registers the model with the Auto classes
from vanilla_transformer.training.seq2seq_trainer import encoded_dataset


@dataclass
class Arguments:
    """The model, the training text and the adapters."""

    model: str = field(metadata={"help": "Folder or Hub name of the model."})
    train_source: Path = field(
        metadata={"help": "Training text, source side, one sentence per line."}
    )
    train_target: Path = field(
        metadata={"help": "Training text, target side, aligned line by line."}
    )
    rank: int = field(default=8, metadata={"help": "Rank of each adapter."})
    target_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "v_proj"],
        metadata={
            "help": (
                "Layers with adapters: q_proj, k_proj, v_proj, out_proj, fc1, fc2, or "
                "all-linear for all of them."
            )
        },
    )


def adapt(model: PreTrainedModel, options: Arguments) -> PeftModel:
    """Add adapters to the layers `options.target_modules`.

    Raises:
        ValueError: a target is a tied weight. There `peft` (0.21) trains one adapter for each use
            and merges all of them into the shared weight, even with `ensure_weight_tying`, so the
            merged model would differ.
    """
    targets = "all-linear" if options.target_modules == ["all-linear"] else options.target_modules
    config = LoraConfig(
        task_type=TaskType.SEQ_2_SEQ_LM,
        r=options.rank,
        lora_alpha=2 * options.rank,
        lora_dropout=0.1,
        target_modules=targets,
    )
    ties = model.all_tied_weights_keys.items()
    tied = {name.rpartition(".")[0] for tie in ties for name in tie}
    adapted = get_peft_model(model, config)
    targeted: list[str] = adapted.targeted_module_names
    wrong = sorted(tied.intersection(targeted))
    if wrong:
        raise ValueError(
            f"Adapters cannot be merged into tied weights, got {', '.join(wrong)}. Remove them "
            "from --target_modules."
        )
    return adapted


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser((Arguments, Seq2SeqTrainingArguments), allow_abbrev=False)
    options, training = parser.parse_args_into_dataclasses(list(words))
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = adapt(AutoModelForSeq2SeqLM.from_pretrained(options.model), options)
    model.print_trainable_parameters()
    trainer = Seq2SeqTrainer(
        model,
        training,
        train_dataset=encoded_dataset(tokenizer, options.train_source, options.train_target),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model()  # saves only the adapters
    merged = Path(training.output_dir) / "merged"
    trainer.model.merge_and_unload().save_pretrained(merged)
    tokenizer.save_pretrained(merged)
    print(f"The adapters are in {training.output_dir}, the merged model in {merged}.")


if __name__ == "__main__":
    main(sys.argv[1:])
