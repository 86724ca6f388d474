"""The names of metrics for people."""

# Metrics that need several translations of each text, and their number
OF_N_BEST = {f"accuracy@{best}": best for best in range(2, 101)}
METRIC_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "chrf++": "chrF++",
    "ter": "TER",
    "paper_bleu": "paper's BLEU",
    "tokenized_bleu": "tokenized BLEU",
    "accuracy": "accuracy",
    **dict(zip(OF_N_BEST, OF_N_BEST, strict=True)),
}

LOWER_IS_BETTER = ("loss", "ter", "wer", "cer", "perplexity")  # metrics
