#!/usr/bin/env bash
# Fine-tune a model on few pairs of a domain, with and without back-translations of German text, and compare both.
#
#   benchmarks/back_translation.sh MODEL REVERSE_MODEL TEXT [UPDATES]
#
# MODEL translates English to German, and REVERSE_MODEL German to English. TEXT is a folder with train.en, train.de,
# val.en and val.de. The first 5,000 training pairs are the domain's, the next 500 choose the checkpoint, the German
# side of the next 30,000 is the monolingual text, and val is the test text. Interrupted runs resume.
set -euo pipefail
model=$1 reverse=$2 text=$3 updates=${4:-2000}
runs=runs/back_translation
mkdir -p $runs
for side in en de; do
    head -n 5000 "$text/train.$side" > $runs/pairs.$side
    head -n 5500 "$text/train.$side" | tail -n 500 > $runs/validation.$side
done
head -n 35500 "$text/train.de" | tail -n 30000 > $runs/monolingual.de

fine_tune() { # FROM SOURCE TARGET OUTPUT FLAGS...
    vanilla-transformer train finetune_opus_mt --init_from "$1" --init_vocabulary extend --vocab_size 8000 \
        --output_dir "$4" --validation_source "$runs/validation.$2" --validation_target "$runs/validation.$3" \
        --max_tokens 768 --dropout 0.3 --lr_scheduler inverse_sqrt --learning_rate 1.0e-3 --warmup_steps 200 \
        --max_steps "$updates" --early_stopping_patience 100 --eval_steps 250 --save_steps 250 \
        --average_checkpoints 1 --attn_implementation eager "${@:5}"
}
evaluate() { # MODEL OUTPUT FLAGS...
    vanilla-transformer evaluate "$1" --source "$text/val.en" --target "$text/val.de" --output_file "$2" "${@:3}"
}

fine_tune "$reverse" de en $runs/reverse --train_source $runs/pairs.de --train_target $runs/pairs.en
vanilla-transformer back-translate $runs/reverse --resume --tag "<BT>" \
    --input $runs/monolingual.de --output $runs/back.tsv
fine_tune "$model" en de $runs/plain --train_source $runs/pairs.en --train_target $runs/pairs.de
fine_tune "$model" en de $runs/augmented --source_tags "[<BT>]" \
    --corpora "[{source: $runs/pairs.en, target: $runs/pairs.de}, {file: $runs/back.tsv}]"
evaluate $runs/plain $runs/plain.de
evaluate $runs/augmented $runs/augmented.de --compare_with $runs/plain.de
