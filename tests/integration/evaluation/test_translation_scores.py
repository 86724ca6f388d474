"""The metric for the `evaluate` library: loaded by path, without network."""

from pathlib import Path

import pytest
import torch
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from vanilla_transformer.evaluation import metric_path
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.evaluation.translation_scores.translation_scores import TranslationScores

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei E-Mail-Hunde laufen schnell."]
REFERENCES = ["Ein Mann schläft auf einem Sofa.", "Zwei E-Mail-Hunde rennen schnell."]


@pytest.fixture
def metric(tmp_path):
    return TranslationScores(cache_dir=str(tmp_path / "cache"))


def test_metric_path_has_the_name_of_its_folder():
    path = Path(metric_path())
    # `evaluate` takes the folder as well then.
    assert path.is_file() and path.stem == path.parent.name


def test_translation_scores_accepts_lists_of_one_reference(metric):
    expected = score(HYPOTHESES, REFERENCES)._asdict()
    assert metric.compute(predictions=HYPOTHESES, references=REFERENCES) == expected
    lists = [[text] for text in REFERENCES]
    assert metric.compute(predictions=HYPOTHESES, references=lists) == expected
    with pytest.raises(ValueError, match="must have a reference, but one has none"):
        metric.compute(predictions=["a", "b"], references=[["a", "b"], []])


def test_translation_scores_takes_several_references(metric):
    others = [*HYPOTHESES[:-1], ""]
    rows = [[*row] for row in zip(REFERENCES, others, strict=True)]
    references = [*rows[:-1], REFERENCES[-1:]]
    scores = metric.compute(predictions=HYPOTHESES, references=references)
    assert scores == score(HYPOTHESES, REFERENCES, others)._asdict()
    assert scores["bleu"] > score(HYPOTHESES, REFERENCES).bleu


def test_translation_scores_works_in_seq2seq_trainer(metric, tiny_model, tiny_tokenizer, tmp_path):
    def compute_metrics(prediction):
        sides = (torch.as_tensor(ids) for ids in prediction)
        texts = [
            tiny_tokenizer.batch_decode(side.clamp(min=0), skip_special_tokens=True)
            for side in sides
        ]
        return metric.compute(predictions=texts[0], references=texts[1])

    data = [
        tiny_tokenizer("Two dogs.", text_target="Zwei Hunde."),
        tiny_tokenizer("A man.", text_target="Ein Mann."),
    ]
    trainer = Seq2SeqTrainer(
        tiny_model,
        Seq2SeqTrainingArguments(
            tmp_path, predict_with_generate=True, use_cpu=True, report_to="none"
        ),
        eval_dataset=data,
        data_collator=DataCollatorForSeq2Seq(tiny_tokenizer),
        processing_class=tiny_tokenizer,
        compute_metrics=compute_metrics,
    )
    metrics = trainer.evaluate()
    assert 0 <= metrics["eval_chrf"] <= 100 and "tok:13a" in metrics["eval_bleu_signature"]
