"""`translate` prints what the pipeline decodes: in lines, in objects, by each search, with warnings
and a bar.
"""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from tests.closeness import close_to
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import answers, corpus_shards
from vanilla_transformer.decoding.segments import SentenceReader
from vanilla_transformer.decoding.sentences import Draft
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.translation_warnings import WARNINGS

SENTENCES = ["A man is sleeping.", "", "Two dogs."]
FIELDS = ["text", "score", "log_probability", "warnings", "tokens"]
SHORT = ["--num_beams", "2", "--max_new_tokens", "12"]
GREEDY = ["--num_beams", "1", "--max_new_tokens", "12"]
BEAMS = ["--num_beams", "3", "--max_new_tokens", "20"]


@pytest.fixture(scope="module")
def folder(tiny_tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    return str(save_model_folder(tiny_model(), tiny_tokenizer, path))


def printed(capsys, *arguments):
    assert main(["translate", *arguments]) in (0, None)
    return capsys.readouterr().out.removesuffix("\n").split("\n")


def test_translate_json_has_sources_scores_and_tokens(folder, capsys, monkeypatch):
    plain = printed(capsys, folder, *SENTENCES, "--num_return_sequences", "2")
    monkeypatch.setattr(sys, "stdin", iter(f"{sentence}\n" for sentence in SENTENCES))
    lines = printed(capsys, folder, "--json", "--num_return_sequences", "2")
    rows = [json.loads(line) for line in lines]
    assert [row["source"] for row in rows] == SENTENCES
    translations = sum((row["translations"] for row in rows), [])
    assert [translation["text"] for translation in translations] == plain
    for translation in translations:
        assert [*translation] == FIELDS
        total = sum(token["log_probability"] for token in translation["tokens"])
        assert translation["log_probability"] == close_to(total)


def test_translate_json_of_a_model_without_scores_has_texts(
    tiny_tokenizer, tmp_path, capsys, caplog
):
    model = tiny_long_model(layer_types="transfo_xl_attention")
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    (line,) = printed(capsys, str(folder), "A man.", "--json")
    (translation,) = json.loads(line)["translations"]
    assert translation.keys() == {"text"}
    name = "VanillaTransformerLongForConditionalGeneration"
    message = f"{name} has no scores, tokens or warnings, so the objects have texts only."
    assert message in caplog.messages


@pytest.mark.parametrize("flags", [("--json",), ("--n_best", "2")])
def test_translate_returns_scores_of_blank_text_alone(folder, capsys, flags):
    lines = printed(capsys, folder, " ", "--num_beams", "2", *flags)
    assert "".join(lines).count("0.0") == 2


def test_translate_constraint_is_in_each_translation(folder, capsys):
    flags = [*BEAMS, "--constraint", "Hunde laufen", "Mann", "--constraint", "Gras"]
    lines = printed(capsys, folder, "A man.", "Two dogs.", *flags)
    assert len(lines) == 2
    for line in lines:
        assert "Hunde laufen" in line and "Mann" in line and "Gras" in line


def test_translate_tab_constraints_are_of_their_lines(folder, capsys, tmp_path):
    (tmp_path / "in").write_text("A man.\tMann\tEin Mann\n\nTwo dogs.\n")
    flags = [*BEAMS, "--tab_constraints", "--constraint", "Gras", "--json", "--quiet"]
    lines = printed(capsys, folder, "--input", str(tmp_path / "in"), *flags)
    first, blank, last = map(json.loads, lines)
    assert first["source"] == "A man."
    assert "Ein Mann" in first["translations"][0]["text"]
    assert blank["translations"][0]["text"] == "" and last["source"] == "Two dogs."
    for row in (first, last):
        assert "Gras" in row["translations"][0]["text"]


def test_translate_samples_by_seed(folder, capsys):
    sampling = ["--do_sample", "--top_k", "0", "--temperature", "1.5"]
    sampling += ["--num_return_sequences", "2", "--seed"]
    first = printed(capsys, folder, "A man.", *sampling, "3")
    assert printed(capsys, folder, "A man.", *sampling, "3") == first
    assert printed(capsys, folder, "A man.", *sampling, "4") != first


def test_translate_repeats_no_sample_in_other_blocks(folder, tmp_path, capsys):
    (tmp_path / "source.txt").write_text("A man.\n" * 200)
    sampling = ["--do_sample", "--seed", "3", "--top_k", "0", "--batch_size", "1"]
    files = ["--input", str(tmp_path / "source.txt")]
    assert len({*printed(capsys, folder, *files, *sampling)}) > 150


def test_translate_decodes_by_minimum_bayes_risk(folder, capsys):
    risk = ["--mbr", "bleu", "--mbr_samples", "4", "--seed", "3"]
    lines = printed(capsys, folder, "A man.", *risk)
    assert printed(capsys, folder, "A man.", *risk) == lines
    flags = ["--mbr", "chrf", "--num_beams", "3", "--json"]
    (line,) = printed(capsys, folder, "A man.", *flags)
    (translation,) = json.loads(line)["translations"]
    assert 0 <= translation["score"] <= 100


def test_translate_begins_with_prefixes(folder, tmp_path, capsys):
    flags = [*SHORT, "--target_prefix", "Ein"]
    first, second = printed(capsys, folder, "A man.", "Two dogs.", *flags)
    assert first.startswith("Ein") and second.startswith("Ein")
    (tmp_path / "source").write_text("A man.\nTwo dogs.\n\n")
    (tmp_path / "prefixes").write_text("Ein\nZwei\n\n")
    files = ["--input", str(tmp_path / "source")]
    files += ["--target_prefixes", str(tmp_path / "prefixes")]
    for flags in ([], ["--batch_size", "1"]):
        first, second, blank = printed(capsys, folder, *files, *SHORT, *flags)
        assert first.startswith("Ein") and second.startswith("Zwei") and blank == ""


def test_translate_follows_the_draft_of_each_line(folder, tmp_path, capsys):
    (tmp_path / "source").write_text("A man.\nTwo dogs.\n\n")
    (tmp_path / "drafts").write_text("Zwei Hunde\n\n\n")
    files = ["--input", str(tmp_path / "source"), "--num_beams", "1", "--max_new_tokens", "8"]
    plain = printed(capsys, folder, *files)
    files += ["--draft", str(tmp_path / "drafts")]
    assert printed(capsys, folder, *files) == plain
    for flags in ([], ["--batch_size", "1"]):
        first, *others = printed(capsys, folder, *files, "--draft_bias", "0.5", *flags)
        assert first.startswith("Zwei Hunde") and others == plain[1:]


def test_translate_keeps_the_translations_of_unchanged_lines(folder, tmp_path, capsys, monkeypatch):
    texts = {"old": "A man.\nTwo dogs run.\n\n", "old.de": "Ein  Mann!\nZwei Hunde\n\n"}
    texts["new"] = "Two dogs run now.\n\nA man.\nThree\n"
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = ["--input", str(tmp_path / "new"), "--previous", str(tmp_path / "old")]
    files += [str(tmp_path / "old.de"), *GREEDY]
    plain = printed(capsys, folder, "--input", str(tmp_path / "new"), *GREEDY)
    drafts, add_draft = [], SentenceReader._add_draft

    def record(reader, sentences, draft):
        drafts.append(draft)
        return add_draft(reader, sentences, draft)

    monkeypatch.setattr(SentenceReader, "_add_draft", record)
    for flags in ([], ["--batch_size", "1"], ["--output", str(tmp_path / "out")]):
        assert main(["translate", str(folder), *files, *flags]) == 0
        output, error = capsys.readouterr()
        lines = (output or (tmp_path / "out").read_text()).split("\n")
        assert lines[1:] == ["", "Ein  Mann!", plain[3], ""]
        assert error.endswith("Kept 2 of 4 lines; 1 changed, 1 new.\n")
    assert drafts == [Draft("Zwei Hunde", source="Two dogs run."), Draft("")] * 3
    objects = [json.loads(line) for line in printed(capsys, folder, *files, "--json")]
    assert [entry["previous"] for entry in objects] == ["changed", "kept", "kept", "new"]
    assert objects[2] == {
        "source": "A man.",
        "translations": [{"text": "Ein  Mann!"}],
        "previous": "kept",
    }


def test_translate_follows_a_growing_text(folder, capsys, monkeypatch):
    text = "A man\nA man. Two\nA man. Two dogs\n\n\nThree\n"
    flags = ["translate", str(folder), "--live", "--quiet", *GREEDY]
    exact = [
        printed(capsys, folder, sentence, *GREEDY) for sentence in ("A man.", "Two dogs", "Three")
    ]
    (man,), (dogs,), (three,) = exact
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(flags) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 7 and lines[2].startswith(man)
    assert lines[3] == f"{man} {dogs}" and lines[5:] == [three, ""]
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main([*flags, "--json"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["final"] for entry in objects] == [False] * 3 + [True, False, True]
    assert objects[3] == {"text": f"{man} {dogs}", "stable": len(lines[3]), "final": True}
    assert all(entry["stable"] <= len(entry["text"]) for entry in objects)


def test_translate_prints_alternatives(folder, capsys):
    flags = [*SHORT, "--target_prefix", "Ein", "--alternatives", "3"]
    lines = printed(capsys, folder, "A man.", "Two dogs.", *flags)
    assert len(lines) == 6 and all(line.startswith("Ein") for line in lines)
    (line,) = printed(capsys, folder, "A man.", *flags, "--json")
    translations = json.loads(line)["translations"]
    assert [translation["text"] for translation in translations] == lines[:3]


WARNED = ["A man and 84 or 91 dogs.", "Two dogs."]


def printed_and_warned(capsys, *arguments):
    capsys.readouterr()
    assert main(["translate", *arguments]) == 0
    output = capsys.readouterr()
    lines = output.err.splitlines()
    return output.out, [line for line in lines if line.startswith("warning: ")]


def test_translate_in_a_terminal_shows_warnings(folder, capsys, tmp_path, monkeypatch):
    out, _ = printed_and_warned(capsys, folder, *WARNED, "--json")
    rows = [json.loads(line)["translations"][0]["warnings"] for line in out.splitlines()]
    assert "numbers" in rows[0]
    piped, said = printed_and_warned(capsys, folder, *WARNED)
    assert said == []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown, said = printed_and_warned(capsys, folder, *WARNED)
    assert shown == piped
    expected = []
    for index, names in enumerate(rows):
        messages = "; ".join(f"{WARNINGS[name]} ({name})" for name in names)
        if names:
            expected.append(f"warning: line {index + 1}: {messages}.")
    assert said == expected
    for flags in (["--quiet"], ["--json"], ["--output", str(tmp_path / "out")]):
        assert printed_and_warned(capsys, folder, *WARNED, *flags)[1] == []
    (alone,) = printed_and_warned(capsys, folder, WARNED[0])[1]
    assert alone == expected[0].replace("line 1: ", "")


def test_translate_shows_the_warnings_of_a_typed_line(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    typed_lines = "vanilla_transformer.cli.lines.typed_lines"
    monkeypatch.setattr(typed_lines, lambda prompt: iter(WARNED[:1] * 2))
    _, said = printed_and_warned(capsys, folder)
    assert len(said) == 2
    assert "a number differs from the source (numbers)" in said[0] == said[1]


HAS = "1 of 2 translations have warnings: "


@pytest.fixture
def only_numbers(monkeypatch):
    """Let no translation of random weights have a warning but the first one of `WARNED`."""

    def find_warnings(source, text, *evidence):
        if source == WARNED[0]:
            return ["numbers"]
        return []

    monkeypatch.setattr(answers, "find_warnings", find_warnings)


@pytest.mark.parametrize("flags", [(), ("--output", "{}/out"), ("--json", "--quiet")])
def test_translate_fails_on_warnings_once_all_is_written(
    folder, capsys, tmp_path, flags, only_numbers
):
    flags = [flag.format(tmp_path) for flag in flags]
    (tmp_path / "in").write_text("\n".join(WARNED[::-1]) + "\n")
    command = ["translate", folder, "--input", str(tmp_path / "in"), *SHORT, *flags]
    assert main([*command, "--fail_on_warnings"]) == 2
    output = capsys.readouterr()
    written = (tmp_path / "out").read_text() if flags[:1] == ["--output"] else output.out
    assert len(written.splitlines()) == 2
    requirement = f"error: With --fail_on_warnings none may have one, but {HAS}line 2 (numbers)"
    said = output.err.splitlines()  # after a bar
    assert said[-1] == f"{requirement}. The output is written. Check them."
    assert "warning" not in "".join(said[:-1])


def test_translate_document_says_which_translations_have_warnings(
    folder, capsys, tmp_path, only_numbers
):
    page = "".join(f"<p>{text}</p>\n" for text in WARNED[::-1])
    (tmp_path / "a.html").write_text(page)
    command = ["translate", folder, "--input", str(tmp_path / "a.html"), "--format", "html"]
    command += SHORT
    assert main(command) == 0
    output = capsys.readouterr()
    *_, said = output.err.splitlines()
    assert said.startswith(f"warning: {HAS}") and said.endswith(" (numbers).")
    assert main([*command, "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.out == output.out and "warning" not in quiet.err
    assert main([*command, "--quiet", "--fail_on_warnings"]) == 2
    failed = capsys.readouterr()
    assert failed.out == output.out and "may have one, but 1 of 2 trans" in failed.err


@pytest.mark.parametrize("flags", [("--resume",), ("--engine", "ray")])
def test_translate_fails_on_warnings_about_its_own_lines_only(folder, capsys, tmp_path, flags):
    (tmp_path / "in").write_text("A man.\n")
    files = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(["translate", folder, *files, *flags, "--fail_on_warnings"]) == 2
    assert "--fail_on_warnings" in capsys.readouterr().err


LINES = ["A man.", "", "Two dogs. Two dogs run. A man is sleeping.", "Two dogs."]
LINES += ["A man. Two dogs.", "Dogs."]


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


SEARCHES = [("--num_beams", "1"), ("--precision", "float32"), ("--n_best", "2"), ()]
SEARCHES += [("--num_beams", "2", "--mbr", "chrf")]


@pytest.mark.parametrize("flags", SEARCHES, ids=lambda flags: "".join(flags))
def test_translate_bar_moves_within_a_block(flags, places, tiny_tokenizer, tmp_path, capsys):
    model = tiny_model(max_source_length=8)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(LINES) + "\n")
    files = ["--input", str(tmp_path / "text"), "--batch_size", "2"]
    command = [str(folder), *files, *flags]
    printed(capsys, *command, "--output", str(tmp_path / "out"))
    assert places == sorted(places) and places[-1] == len(LINES)
    assert len(set(places)) > 2, "all lines are in one block"


def test_translate_bar_survives_quiet(folder, places, capsys):
    lines = printed(capsys, folder, "A man.", "Two dogs.", "--quiet")
    assert len(lines) == places[-1] == 2


def test_pipeline_reports_progress(tiny_tokenizer):
    calls = []
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer)
    translate(LINES, batch_size=2, progress=lambda *call: calls.append(call))
    done = [count for count, _ in calls]
    assert calls[-1] == (5, 5) and done == sorted({*done})
    assert len(calls) > 1
