"""The pipeline translates the sentences of a line one by one and puts them together with their
white space.
"""

import pytest

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder

ENGLISH = ["Dr. Smith sleeps.", "Two dogs run, e.g. here.", "A man."]
GERMAN = ["Dr. Schmidt schläft.", "Hunde, z. B. Pudel, laufen."]
TEXT = "  Dr. Smith sleeps.  Two dogs run, e.g. here.\n\nA man."


def translator(tokenizer, **options):
    options |= {"compile": False, "num_beams": 1}
    return TranslationPipeline(tiny_model(), tokenizer, **options)


def texts(answers):
    return [answer["translation_text"] for answer in answers]


def test_pipeline_translates_sentence_by_sentence(tiny_tokenizer):
    translate = translator(tiny_tokenizer)
    first, second, third, *german = texts(translate([*ENGLISH, *GERMAN]))
    expected = f"{first}  {second}\n\n{third}"
    answers = translate([TEXT, "", " \n"], split_sentences=True)
    assert texts(answers) == [expected, "", ""]
    assert texts(translate(TEXT)) != [expected]
    options = {"split_sentences": True, "source_language": "de"}
    assert texts(translate(" ".join(GERMAN), **options)) == [" ".join(german)]


def test_pipeline_calls_the_splitter_of_the_user(tiny_tokenizer):
    seen = []

    class Halves:
        def __call__(self, text):
            seen.append(text)
            return text.split(" / ")

    message = "in order and unchanged; the mistake is near 'b'"
    with pytest.raises(ValueError, match=message):
        translator(tiny_tokenizer, sentence_splitter=Halves())("a / b")
    translate = translator(tiny_tokenizer, sentence_splitter=str.split)
    assert texts(translate("Two dogs")) == [" ".join(texts(translate(["Two", "dogs"])))]
    whole = texts(translator(tiny_tokenizer)("Two dogs"))
    assert texts(translate("Two dogs", split_sentences=False)) == whole
    assert seen == ["a / b"]


def test_pipeline_links_sentences_of_a_line(tiny_tokenizer):
    translate = translator(tiny_tokenizer, return_alignments=True)
    translate.model.config.alignment_heads = [[0, 1]]
    line = TEXT.splitlines()[0]
    *alone, both = translate([*ENGLISH[:2], line], sentence_splitter="abbreviations")
    end = len(alone[0]["translation_text"] + "  ")
    first = [link.shift(2, 0) for link in alone[0]["alignment"]]
    start = len("  Dr. Smith sleeps.  ")
    second = [link.shift(start, end) for link in alone[1]["alignment"]]
    links = [link[:4] for link in [*first, *second]]
    assert [link[:4] for link in both["alignment"]] == links != []


def test_translate_splits_lines_by_flags(tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "model"))
    beams = ["--num_beams", "1"]
    assert main(["translate", folder, *ENGLISH[:2], *beams]) == 0
    alone = capsys.readouterr().out.splitlines()
    flags = [*beams, "--split_sentences"]
    assert main(["translate", folder, " ".join(ENGLISH[:2]), *flags]) == 0
    assert capsys.readouterr().out == " ".join(alone) + "\n"
    (tmp_path / "text").write_text("One. Two.\n")
    files = ["--input", str(tmp_path / "text"), "--output", str(tmp_path / "out")]
    flags = ["--split_sentences", "--sentence_splitter", "no"]
    assert main(["translate", folder, *files, *flags]) == 2
    message = "error: `sentence_splitter` must be 'abbreviations'"
    assert message in capsys.readouterr().err
    assert not [*tmp_path.glob("out*")]
