"""The names of metrics for people."""

METRIC_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "chrf++": "chrF++",
    "ter": "TER",
    "paper_bleu": "paper's BLEU",
    "tokenized_bleu": "tokenized BLEU",
}

LOWER_IS_BETTER = ("loss", "ter", "wer", "cer", "perplexity")  # metrics
