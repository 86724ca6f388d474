#!/usr/bin/env bash
# Train English-German models of Multi30k, add French with replay, and print the scores of all directions before and after.
#
#   vanilla-transformer download-data multi30k
#   benchmarks/many_languages.sh [MINUTES]     # of each training, by default 60; interrupted ones resume
set -euo pipefail
minutes=${1:-60}
text=data/multi30k
german="{source: $text/train.en, target: $text/train.de, source_language: en, target_language: de, both_directions: true"
french="{source: $text/train.en, target: $text/train.fr, source_language: en, target_language: fr, both_directions: true"
validation="{source: $text/val.en, target: $text/val.de, source_language: en, target_language: de, both_directions: true}"

evaluate() { vanilla-transformer evaluate-directions "$1" --text "$text/test_2016_flickr"; }

# All four directions at once; German-French and French-German are zero-shot.
vanilla-transformer train multilingual --output_dir runs/multilingual --max_minutes "$minutes"
evaluate runs/multilingual

# English and German first, then French.
vanilla-transformer train multilingual --output_dir runs/en_de --max_minutes "$minutes" --vocab_size 6000 \
    --corpora "[$german}]" --validation "[$validation]"
evaluate runs/en_de
vanilla-transformer train finetune_opus_mt --init_from runs/en_de --output_dir runs/en_de_fr --max_minutes "$minutes" \
    --max_steps 20000 --init_vocabulary extend --vocab_size 8000 --learning_rate 7.0e-4 --warmup_steps 200 --dropout 0.2 \
    --lr_scheduler inverse_sqrt --max_tokens 1536 --ema_decay 0.999 --attn_implementation eager --eval_steps 1500 \
    --corpora "[$french}, $german, weight: 0.5}]" --validation "[$validation, ${validation//de/fr}]"
evaluate runs/en_de_fr
