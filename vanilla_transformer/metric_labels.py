"""Labels of translation metrics, for reports and model cards."""

METRIC_LABELS = {"bleu": "BLEU", "chrf": "chrF", "paper_bleu": "paper's BLEU", "tokenized_bleu": "tokenized BLEU"}
