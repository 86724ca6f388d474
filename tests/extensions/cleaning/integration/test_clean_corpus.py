"""The command that cleans a corpus or the training text of a recipe."""

import json
import random
import re
import unicodedata
from itertools import chain, pairwise

import pytest

from tests.comet_files import UNIFIED, write_comet
from vanilla_transformer.cli import main
from vanilla_transformer.data.cleaning import LENGTH_EDGES
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.quality.comet import Comet


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a recipe of two corpora, one for each of two target languages, into a working
    folder.
    """
    monkeypatch.chdir(tmp_path)
    german = "The house is old.\tDas Haus ist alt.\nIt has 25.\tEs hat 26.\nBerlin\tBerlin\n"
    (tmp_path / "a.tsv").write_text(german)
    french = "The house is old.\tLa maison est vieille.\nIt has 25.\tElle en a 26.\n"
    (tmp_path / "b.tsv").write_text(french)
    recipe = [
        "corpora:",
        "  - {file: a.tsv, target_language: de, drop: [identical, other_numbers]}",
        "  - {file: b.tsv, target_language: fr}",
        "source_language: en",
        "drop: [identical]",
        "output_dir: out",
        "cache_dir: cache",
    ]
    (tmp_path / "recipe.yaml").write_text("\n".join(recipe))
    return tmp_path


def clean(*words):
    """Clean a corpus in the working folder, and return the exit status."""
    return main(["clean-corpus", *words, "--cache_dir", "cache"])


def flags_of(**options):
    """Return the words of options on a command line."""
    words = []
    for name, value in options.items():
        words += [f"--{name}", value]
    return words


def test_clean_corpus_writes_text_and_pictures(folder, capsys, caplog, real_pictures):
    assert main(["clean-corpus", "recipe.yaml"]) == 0
    assert (folder / "out/train.en-de.en").read_text() == "The house is old.\n"
    assert (folder / "out/train.en-de.de").read_text() == "Das Haus ist alt.\n"
    french = "La maison est vieille.\nElle en a 26.\n"
    assert (folder / "out/train.en-fr.fr").read_text() == french
    report = json.loads((folder / "out/corpus.json").read_text())["cleaning"]
    assert report["dropped"] == {"identical": 1, "other_numbers": 1}
    assert report["examples"]["other_numbers"] == [["It has 25.", "Es hat 26."]]
    assert sum(report["histograms"]["source"]["kept"]) == 3
    assert report["kept"] == 3
    assert len(report["histograms"]["target"]["dropped"]) == len(LENGTH_EDGES) - 1
    assert (folder / "out/lengths.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "3 of 5 pairs kept." in printed
    assert "It has 25. | Es hat 26." in printed
    assert "out/lengths.png" in caplog.messages[-1]


def test_clean_corpus_keeps_the_pairs_of_the_best_quality(folder):
    lines = (folder / "a.tsv").read_text().splitlines()
    sources, targets = zip(*(line.split("\t") for line in lines), strict=True)
    model = Comet.load(write_comet(folder / "quality", UNIFIED))
    scores = model.score(sources, targets)
    recipe = [
        "corpora: [{file: a.tsv}]",
        "score: {quality: quality, keep: 0.34}",
        "source_language: en",
        "target_language: de",
        "drop: [empty]",
        "output_dir: out",
        "cache_dir: cache",
    ]
    (folder / "quality.yaml").write_text("\n".join(recipe))
    assert main(["clean-corpus", "quality.yaml"]) == 0
    best = sources[scores.argmax()]
    assert (folder / "out/train.en-de.en").read_text() == f"{best}\n"


def test_clean_corpus_keeps_the_sides_of_one_language_apart(folder):
    words = flags_of(train_source="bad.en", train_target="good.en")
    words += flags_of(source_language="en", target_language="en", output_dir="o")
    (folder / "bad.en").write_text("He go.\n")
    (folder / "good.en").write_text("He goes.\n")
    assert clean(*words) == 0
    assert (folder / "o/train.en-en.source").read_text() == "He go.\n"
    assert (folder / "o/train.en-en.target").read_text() == "He goes.\n"


ON_TOKENS = (
    "must be given to `train`, which counts tokens, got it in clean-corpus. Move it, "
    "or limit characters by "
)
REFUSALS = [
    (["recipe.yaml", "--max-length", "9"], f"--max_length {ON_TOKENS}--max_characters."),
    (
        ["recipe.yaml", "--max_length_ratio=2"],
        f"--max_length_ratio {ON_TOKENS}--max_character_ratio.",
    ),
    (["recipe.yaml", "--max_steps", "9"], "There is no flag"),
    (["recipe.yaml", "--stream"], "There is no flag"),
    (["recipe.yaml", "--d_model=64"], "There is no flag"),
    (
        ["--corpora", '[{"file": "bad.tsv"}]', "--output_dir", "out"],
        "Line 1 of bad.tsv must have two columns",
    ),
]


@pytest.mark.parametrize(("words", "message"), REFUSALS)
def test_clean_corpus_refuses_and_writes_nothing(folder, capsys, words, message):
    (folder / "bad.tsv").write_text("no tab\n")
    assert clean(*words) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


# With the beginning of a mistake for each line that has one.
MISTAKES = """\
data:
  max_characters: many  # `max_characters` must be an integer
  min_scroe: 2  # There is no recipe key 'min_scroe'. Did you mean 'min_score'?
  drop: [identicle]  # `drop` must name kinds of pairs of
  source_language: en
corpora:
- file: a.tsv
  wieght: 2  # There is no key of a corpus 'wieght'. Did you mean 'weight'?
model:
  warmup_steps: 5  # `warmup_steps` must be in the section `optimization`, got it in `model`.
"""


def test_clean_corpus_is_refused_once_with_all_mistakes_of_a_recipe(folder, capsys):
    (folder / "wrong.yaml").write_text(MISTAKES)
    assert clean("wrong.yaml", "--min_letter_ratio", "7") == 2
    messages = capsys.readouterr().err.removeprefix("error: ").splitlines()
    expected = ["`output_dir` must be given", "`min_letter_ratio` must be a number in [0, 1]"]
    for number, line in enumerate(MISTAKES.splitlines(), 1):
        _, _, reason = line.partition("  # ")
        if reason:
            expected.append(f"wrong.yaml, line {number}: {reason}")
    assert len(messages) == len(expected)
    for reason in expected:
        assert any(message.startswith(reason) for message in messages), (reason, messages)


def test_clean_corpus_writes_each_text_on_one_line(folder):
    row = {"source": "One\nhouse.", "target": "Ein\x0bHaus."}
    (folder / "c.jsonl").write_text(json.dumps(row))
    corpora = json.dumps([{"file": "c.jsonl"}])
    assert clean(*flags_of(corpora=corpora, output_dir="plain")) == 0
    assert (folder / "plain/train.source").read_text() == "One house.\n"
    assert (folder / "plain/train.target").read_text() == "Ein Haus.\n"


def test_clean_corpus_has_its_own_rules_which_a_recipe_or_a_flag_changes(folder):
    marked, plain, formula = ("The <b>house</b> is old.", "It has 25.", "= 25 + 1.")
    rows = [
        f"{marked}\tDas Haus ist alt.\n",
        f"{plain}\tEs hat 25.\n",
        f"{formula}\t25 + 1.\n",
    ]
    (folder / "c.tsv").write_text("".join(rows))
    flags = flags_of(corpora=json.dumps([{"file": "c.tsv"}]), output_dir="o")
    recipe = [
        "drop: [identical, duplicates]",
        "max_steps: 9",
        "d_model: 64",
        "min_letter_ratio: null",
    ]
    (folder / "c.yaml").write_text("\n".join(recipe))

    def kept(*words):
        assert clean(*words, *flags) == 0
        return (folder / "o/train.source").read_text().splitlines()

    assert kept() == kept("--min_letter_ratio", "0.6") == [plain]
    assert kept("--drop", "identical,duplicates") == [marked, plain]
    assert kept("c.yaml") == [marked, plain, formula]
    assert kept("c.yaml", "--drop=[markup]") == [plain, formula]
    assert kept("c.yaml", "--min_letter_ratio", "0.7") == [marked]


NO_LANGUAGES = [
    ([], "`source_language` of a.en | a.de is not given"),
    (
        ["--source_language", "en", "--target_language", "tlh"],
        "tlh has no code that py3langid knows",
    ),
]


@pytest.mark.parametrize(("languages", "reason"), NO_LANGUAGES)
def test_clean_corpus_says_why_it_looks_at_no_languages(folder, capsys, caplog, languages, reason):
    (folder / "a.en").write_text("The house is old.\n")
    (folder / "a.de").write_text("La maison est vieille.\n")
    words = flags_of(train_source="a.en", train_target="a.de", output_dir="o")
    caplog.set_level("INFO")
    assert clean(*words, *languages) == 0
    assert "Pairs in other languages are kept." in caplog.text
    assert reason in caplog.text
    assert "1 of 1 pairs kept" in capsys.readouterr().out
    assert clean(*words, *languages, "--drop", "other_languages") == 2
    refusal = capsys.readouterr().err
    assert re.search("target_language|source_language|tlh", refusal)


def test_clean_corpus_drops_other_languages_by_default(folder):
    other = "La maison est vieille et grande."
    rows = f"The house is old.\tDas Haus ist alt.\nThat is ours.\t{other}\n"
    (folder / "c.tsv").write_text(rows)
    corpus = {"file": "c.tsv", "source_language": "en", "target_language": "de"}
    flags = flags_of(corpora=json.dumps([corpus]), output_dir="o")

    def kept(*words):
        assert clean(*words, *flags) == 0
        return (folder / "o/train.en-de.de").read_text().splitlines()

    assert kept() == ["Das Haus ist alt."]
    assert len(kept("--drop=[]")) == 2


def test_clean_corpus_finds_what_corpora_have(folder, capsys):
    """Most of each kind is found by the defaults, and at most a hundredth of the other pairs is
    lost.
    """
    draw, pairs = random.Random(0), read_demo_corpus("train", 12_000)
    draw.shuffle(pairs)
    taken = iter(pairs)

    def change(count, source, target):
        pairs = [next(taken) for _ in range(count)]
        return [(source(pair.source), target(pair.target)) for pair in pairs]

    def with_end(end):
        return lambda text: text + end

    def same(text):
        return text

    shifted = [next(taken) for _ in range(200)]
    copies = [next(taken) for _ in range(60)]
    hidden, capitals = copies[:30], copies[30:]
    kinds = {
        "tags": change(50, "<p>{}</p>".format, "<p>{}</p>".format),
        "entities": change(50, same, lambda text: text.replace(" ", "&nbsp;", 1) + " &amp;"),
        "long": change(20, with_end(" and so on" * 300), with_end(" und so weiter" * 220)),
        "mojibake": change(50, same, lambda text: f"{text} Schön.".encode().decode("cp1252")),
        "replaced": change(20, same, "{}\ufffd".format),
        "empty": change(30, same, lambda text: ""),
        "copies": [],
        "capitals": [],
        "not translated": [],
    }
    kinds["misaligned"] = [(one.source, other.target) for one, other in pairwise(shifted)]
    for pair in hidden:
        target = unicodedata.normalize("NFD", pair.target)
        kinds["copies"].append((f"\u200b{pair.source}", target))
    for pair in capitals:
        kinds["capitals"].append((pair.source.upper(), pair.target.upper()))
    for _ in range(50):
        pair = next(taken)
        kinds["not translated"].append((pair.source, pair.source))
    unchanged = [*copies, *taken]
    rows = [*unchanged, *chain(*kinds.values())]
    draw.shuffle(rows)
    for side, name in enumerate(("a.en", "a.de")):
        lines = [f"{row[side]}\n" for row in rows]
        (folder / name).write_text("".join(lines))
    words = flags_of(train_source="a.en", train_target="a.de", output_dir="o")
    words += flags_of(source_language="en", target_language="de")
    assert clean(*words) == 0
    sources = (folder / "o/train.en-de.en").read_text().splitlines()
    targets = (folder / "o/train.en-de.de").read_text().splitlines()
    kept = {*zip(sources, targets, strict=True)}
    shares = {}
    for name, bad in kinds.items():
        lost = [pair for pair in bad if pair not in kept]
        shares[name] = len(lost) / len(bad)
    assert shares.pop("misaligned") > 0.6
    lost = [pair for pair in hidden if tuple(pair) not in kept]
    assert shares.pop("copies") + len(lost) / 30 == 1
    assert shares.pop("mojibake") == 1
    assert min(shares.values()) >= 0.98, shares
    lost = [pair for pair in unchanged[30:] if tuple(pair) not in kept]
    assert len(lost) < 0.01 * len(unchanged)
    still = [pair for pair in capitals if tuple(pair) in kept]
    assert len(still) >= 29
