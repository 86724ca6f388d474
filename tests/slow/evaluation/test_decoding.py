"""Distributed translation: the same translations, in the same order, as on one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.launchers import torchrun
from tests.translation import SENTENCES, translate_alone
from vanilla_transformer.loading.model_folders import save_model_folder

ROOT = Path(__file__).parents[3]

# Every process writes its results for five sentences, one (fewer than processes) and none, and the
# number of sentences that it translated itself.
PROGRAM = """
import json, sys
from pathlib import Path
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.machine.cores import process_state
from vanilla_transformer.evaluation.scores import translate_on_all_processes
from vanilla_transformer.evaluation.scores import translate_and_score

translate, shares = TranslationPipeline.__call__, []

def count(self, texts, **kwargs):
    shares.append(len(texts))
    return translate(self, texts, **kwargs)

TranslationPipeline.__call__ = count
folder, output = sys.argv[1:]
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
sentences = json.loads((Path(output) / "sentences.json").read_text())
alone = TranslationPipeline(model, tokenizer)
found = [translate_on_all_processes(alone, sentences[:number]) for number in (5, 1, 0)]
found.append(translate_and_score(alone, [(text, "Ein Mann.") for text in sentences], num_beams=2))
state = process_state()
(Path(output) / f"{state.process_index}-of-{state.num_processes}.json").write_text(json.dumps([found, shares]))
state.destroy_process_group()
"""


def test_translate_on_all_processes_equals_one_process(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "sentences.json").write_text(json.dumps(SENTENCES))
    command = [sys.executable, "-m", *torchrun(2), str(tmp_path / "program.py")]
    command += [str(folder), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    environment["PYTHONPATH"] = str(ROOT)
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 180}
    finished = subprocess.run(command, **options)
    assert finished.returncode == 0, finished.stderr
    answers, shares = json.loads((tmp_path / "0-of-2.json").read_text())
    other_answers, other_shares = json.loads((tmp_path / "1-of-2.json").read_text())
    assert answers == other_answers
    assert (shares, other_shares) == ([3, 1, 0, 3], [2, 0, 0, 2])
    five, one, none, (scored, scores) = answers
    assert five == translate_alone(tiny_model, tiny_tokenizer, SENTENCES)
    assert len(set(five)) > 2
    assert five[3] == ""
    assert (one, none) == (five[:1], [])
    assert scored == translate_alone(tiny_model, tiny_tokenizer, SENTENCES, num_beams=2)
    assert "tok:13a" in scores[2]
