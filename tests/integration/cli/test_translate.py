"""`translate` prints what the pipeline decodes: in lines, in objects, by each search, with warnings
and a bar.
"""

import json
import sys
from types import SimpleNamespace

import pytest

from tests.closeness import close_to
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import corpus_shards
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.translation_warnings import WARNINGS

SENTENCES = ["A man is sleeping.", "", "Two dogs."]
SHORT = ["--num_beams", "2", "--max_new_tokens", "12"]
BEAMS = ["--num_beams", "3", "--max_new_tokens", "20"]


@pytest.fixture(scope="module")
def folder(tiny_tokenizer, tmp_path_factory):
    return str(
        save_model_folder(tiny_model(), tiny_tokenizer, tmp_path_factory.mktemp("models") / "tiny")
    )


def printed(capsys, *arguments):
    assert main(["translate", *arguments]) in (0, None)
    return capsys.readouterr().out.removesuffix("\n").split("\n")


def test_translate_json_has_sources_scores_and_tokens(folder, capsys, monkeypatch):
    plain = printed(capsys, folder, *SENTENCES, "--num_return_sequences", "2")
    monkeypatch.setattr(sys, "stdin", iter(f"{sentence}\n" for sentence in SENTENCES))
    rows = [
        json.loads(line)
        for line in printed(capsys, folder, "--json", "--num_return_sequences", "2")
    ]
    assert [row["source"] for row in rows] == SENTENCES
    translations = [translation for row in rows for translation in row["translations"]]
    assert [translation["text"] for translation in translations] == plain
    for translation in translations:
        assert [*translation] == ["text", "score", "log_probability", "warnings", "tokens"]
        total = sum(token["log_probability"] for token in translation["tokens"])
        assert translation["log_probability"] == close_to(total)


def test_translate_json_has_texts_and_a_warning_for_a_model_without_scores(
    tiny_tokenizer, tmp_path, capsys, caplog
):
    model = tiny_long_model(layer_types="transfo_xl_attention")
    (line,) = printed(
        capsys,
        str(save_model_folder(model, tiny_tokenizer, tmp_path / "model")),
        "A man.",
        "--json",
    )
    (translation,) = json.loads(line)["translations"]
    assert translation.keys() == {"text"}
    name = "VanillaTransformerLongForConditionalGeneration"
    assert (
        f"{name} has no scores, tokens or warnings, so the objects have texts only."
        in caplog.messages
    )


@pytest.mark.parametrize("flags", [("--json",), ("--n_best", "2")])
def test_translate_returns_scores_of_blank_text_alone(folder, capsys, flags):
    assert "".join(printed(capsys, folder, " ", "--num_beams", "2", *flags)).count("0.0") == 2


def test_translate_constraint_is_in_each_translation(folder, capsys):
    flags = [*BEAMS, "--constraint", "Hunde laufen", "Mann", "--constraint", "Gras"]
    lines = printed(capsys, folder, "A man.", "Two dogs.", *flags)
    assert len(lines) == 2
    assert all(word in line for word in ("Hunde laufen", "Mann", "Gras") for line in lines)


def test_translate_tab_constraints_are_of_their_lines(folder, capsys, tmp_path):
    (tmp_path / "in").write_text("A man.\tMann\tEin Mann\n\nTwo dogs.\n")
    flags = [*BEAMS, "--tab_constraints", "--constraint", "Gras", "--json", "--quiet"]
    first, blank, last = map(
        json.loads, printed(capsys, folder, "--input", str(tmp_path / "in"), *flags)
    )
    assert first["source"] == "A man." and "Ein Mann" in first["translations"][0]["text"]
    assert blank["translations"][0]["text"] == "" and last["source"] == "Two dogs."
    assert all("Gras" in each["translations"][0]["text"] for each in (first, last))


def test_translate_samples_by_seed(folder, capsys):
    sampling = ["--do_sample", "--top_k", "0", "--temperature", "1.5"]
    sampling += ["--num_return_sequences", "2", "--seed"]
    first = printed(capsys, folder, "A man.", *sampling, "3")
    assert printed(capsys, folder, "A man.", *sampling, "3") == first
    assert printed(capsys, folder, "A man.", *sampling, "4") != first


def test_translate_repeats_no_sample_in_other_blocks(folder, tmp_path, capsys):
    (tmp_path / "source.txt").write_text("A man.\n" * 200)
    sampling = ["--do_sample", "--seed", "3", "--top_k", "0", "--batch_size", "1"]
    assert len({*printed(capsys, folder, "--input", str(tmp_path / "source.txt"), *sampling)}) > 150


def test_translate_decodes_by_minimum_bayes_risk(folder, capsys):
    risk = ["--mbr", "bleu", "--mbr_samples", "4", "--seed", "3"]
    assert printed(capsys, folder, "A man.", *risk) == printed(capsys, folder, "A man.", *risk)
    (line,) = printed(capsys, folder, "A man.", "--mbr", "chrf", "--num_beams", "3", "--json")
    (translation,) = json.loads(line)["translations"]
    assert 0 <= translation["score"] <= 100


def test_translate_begins_with_prefixes(folder, tmp_path, capsys):
    first, second = printed(capsys, folder, "A man.", "Two dogs.", *SHORT, "--target_prefix", "Ein")
    assert first.startswith("Ein") and second.startswith("Ein")
    (tmp_path / "source").write_text("A man.\nTwo dogs.\n\n")
    (tmp_path / "prefixes").write_text("Ein\nZwei\n\n")
    files = ["--input", str(tmp_path / "source"), "--target_prefixes", str(tmp_path / "prefixes")]
    for flags in ([], ["--batch_size", "1"]):
        first, second, blank = printed(capsys, folder, *files, *SHORT, *flags)
        assert first.startswith("Ein") and second.startswith("Zwei") and blank == ""


def test_translate_prints_alternatives(folder, capsys):
    flags = [*SHORT, "--target_prefix", "Ein", "--alternatives", "3"]
    lines = printed(capsys, folder, "A man.", "Two dogs.", *flags)
    assert len(lines) == 6 and all(line.startswith("Ein") for line in lines)
    (line,) = printed(capsys, folder, "A man.", *flags, "--json")
    assert [each["text"] for each in json.loads(line)["translations"]] == lines[:3]


WARNED = ["A man and 84 or 91 dogs.", "Two dogs."]


def printed_and_warned(capsys, *arguments):
    capsys.readouterr()
    assert main(["translate", *arguments]) == 0
    output = capsys.readouterr()
    return output.out, [line for line in output.err.splitlines() if line.startswith("warning: ")]


def test_translate_in_a_terminal_shows_the_warnings_of_each_line(folder, capsys, monkeypatch):
    out, _ = printed_and_warned(capsys, folder, *WARNED, "--json")
    names = [json.loads(line)["translations"][0]["warnings"] for line in out.splitlines()]
    assert "numbers" in names[0]
    piped, said = printed_and_warned(capsys, folder, *WARNED)
    assert said == []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown, said = printed_and_warned(capsys, folder, *WARNED)
    assert shown == piped
    expected = [
        f"warning: line {index + 1}: {'; '.join(f'{WARNINGS[name]} ({name})' for name in found)}."
        for index, found in enumerate(names)
        if found
    ]
    assert said == expected
    for flag in ("--quiet", "--json"):
        assert printed_and_warned(capsys, folder, *WARNED, flag)[1] == []
    (alone,) = printed_and_warned(capsys, folder, WARNED[0])[1]
    assert alone == expected[0].replace("line 1: ", "")


def test_translate_shows_the_warnings_of_a_typed_line(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(
        "vanilla_transformer.cli.lines.typed_lines", lambda prompt: iter(WARNED[:1] * 2)
    )
    _, said = printed_and_warned(capsys, folder)
    assert len(said) == 2 and "a number differs from the source (numbers)" in said[0] == said[1]


LINES = [
    "A man.",
    "",
    "Two dogs. Two dogs run. A man is sleeping.",
    "Two dogs.",
    "A man. Two dogs.",
    "Dogs.",
]


@pytest.fixture
def places(monkeypatch):
    """Return the places that the bar shows, in order."""
    shown = []
    progress_bar = corpus_shards.progress_bar

    def open_recorded(total, done, hidden):
        bar = progress_bar(total, done, hidden)
        update = bar.update

        def record(count):
            shown.append((shown[-1] if shown else done) + count)
            return update(count)

        bar.update = record
        return bar

    monkeypatch.setattr(corpus_shards, "progress_bar", open_recorded)
    return shown


@pytest.mark.parametrize(
    "flags",
    [
        ("--num_beams", "1"),
        ("--precision", "float32"),
        ("--num_beams", "2", "--mbr", "chrf"),
        ("--n_best", "2"),
        (),
    ],
    ids=lambda flags: "".join(flags),
)
def test_translate_bar_moves_within_a_block_to_the_number_of_lines(
    flags, places, tiny_tokenizer, tmp_path, capsys
):
    folder = save_model_folder(tiny_model(max_source_length=8), tiny_tokenizer, tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(LINES) + "\n")
    command = [str(folder), "--input", str(tmp_path / "text"), "--batch_size", "2", *flags]
    printed(capsys, *command, "--output", str(tmp_path / "out"))
    assert places == sorted(places) and places[-1] == len(LINES)
    assert len(set(places)) > 2, "all lines are in one block"


def test_translate_bar_survives_quiet(folder, places, capsys):
    assert len(printed(capsys, folder, "A man.", "Two dogs.", "--quiet")) == places[-1] == 2


def test_pipeline_reports_progress(tiny_tokenizer):
    calls = []
    TranslationPipeline(tiny_model(), tiny_tokenizer)(
        LINES, batch_size=2, progress=lambda *call: calls.append(call)
    )
    assert calls[-1] == (5, 5) and [done for done, _ in calls] == sorted(
        {done for done, _ in calls}
    )
    assert len(calls) > 1
