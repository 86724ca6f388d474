"""The command that cleans a corpus or the training text of a recipe."""

import json
import random
import unicodedata

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
    (tmp_path / "a.tsv").write_text(
        "The house is old.\tDas Haus ist alt.\nIt has 25.\tEs hat 26.\nBerlin\tBerlin\n"
    )
    (tmp_path / "b.tsv").write_text(
        "The house is old.\tLa maison est vieille.\nIt has 25.\tElle en a 26.\n"
    )
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


def test_clean_corpus_writes_text_report_and_picture(folder, capsys, caplog, real_pictures):
    assert main(["clean-corpus", "recipe.yaml"]) == 0
    assert (folder / "out/train.en-de.en").read_text() == "The house is old.\n"
    assert (folder / "out/train.en-de.de").read_text() == "Das Haus ist alt.\n"
    assert (folder / "out/train.en-fr.fr").read_text() == "La maison est vieille.\nElle en a 26.\n"
    report = json.loads((folder / "out/corpus.json").read_text())["cleaning"]
    assert report["dropped"] == {"identical": 1, "other_numbers": 1}
    assert report["examples"]["other_numbers"] == [["It has 25.", "Es hat 26."]]
    assert sum(report["histograms"]["source"]["kept"]) == 3 and report["kept"] == 3
    assert len(report["histograms"]["target"]["dropped"]) == len(LENGTH_EDGES) - 1
    assert (folder / "out/lengths.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert (
        "3 of 5 pairs kept." in printed
        and "It has 25. | Es hat 26." in printed
        and "out/lengths.png" in caplog.messages[-1]
    )


def test_clean_corpus_keeps_the_pairs_of_the_best_quality(folder):
    pairs = [line.split("\t") for line in (folder / "a.tsv").read_text().splitlines()]
    scores = Comet.load(write_comet(folder / "quality", UNIFIED)).score(*zip(*pairs, strict=True))
    text = (
        "corpora: [{file: a.tsv}]\nscore: {quality: quality, keep: 0.34}\nsource_language: en\n"
        "target_language: de\n"
        "drop: [empty]\n"
    )
    (folder / "quality.yaml").write_text(f"{text}output_dir: out\ncache_dir: cache\n")
    assert main(["clean-corpus", "quality.yaml"]) == 0
    assert (folder / "out/train.en-de.en").read_text() == pairs[scores.argmax()][0] + "\n"


def test_clean_corpus_keeps_the_sides_of_one_language_apart(folder):
    words = ["--train_source", "bad.en", "--train_target", "good.en", "--source_language", "en"]
    (folder / "bad.en").write_text("He go.\n")
    (folder / "good.en").write_text("He goes.\n")
    assert (
        main(
            [
                "clean-corpus",
                *words,
                "--target_language",
                "en",
                "--output_dir",
                "o",
                "--cache_dir",
                "c",
            ]
        )
        == 0
    )
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
    *(
        (["recipe.yaml", *words], "There is no flag")
        for words in (["--max_steps", "9"], ["--stream"], ["--d_model=64"])
    ),
    (
        ["--corpora", '[{"file": "bad.tsv"}]', "--output_dir", "out"],
        "Line 1 of bad.tsv must have two columns",
    ),
]


@pytest.mark.parametrize(("words", "message"), REFUSALS)
def test_clean_corpus_refuses_and_writes_nothing(folder, capsys, words, message):
    (folder / "bad.tsv").write_text("no tab\n")
    assert main(["clean-corpus", *words, "--cache_dir", "cache"]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_clean_corpus_writes_each_text_on_one_line(folder):
    row = {"source": "One\nhouse.", "target": "Ein\x0bHaus."}
    (folder / "c.jsonl").write_text(json.dumps(row))
    corpora = json.dumps([{"file": "c.jsonl"}])
    assert (
        main(
            ["clean-corpus", "--corpora", corpora, "--output_dir", "plain", "--cache_dir", "cache"]
        )
        == 0
    )
    assert (folder / "plain/train.source").read_text() == "One house.\n"
    assert (folder / "plain/train.target").read_text() == "Ein Haus.\n"


def test_clean_corpus_has_its_own_rules_which_a_recipe_or_a_flag_changes(folder):
    rows = [
        ("The <b>house</b> is old.", "Das Haus ist alt."),
        ("It has 25.", "Es hat 25."),
        ("= 25 + 1.", "25 + 1."),
    ]
    (folder / "c.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    corpora = json.dumps([{"file": "c.tsv"}])
    (folder / "c.yaml").write_text(
        "drop: [identical, duplicates]\nmax_steps: 9\nd_model: 64\nmin_letter_ratio: null\n"
    )

    def kept(*words):
        assert (
            main(
                [
                    "clean-corpus",
                    *words,
                    "--corpora",
                    corpora,
                    "--output_dir",
                    "o",
                    "--cache_dir",
                    "c",
                ]
            )
            == 0
        )
        return (folder / "o/train.source").read_text().splitlines()

    marked, plain, formula = (source for source, _ in rows)
    assert kept() == kept("--min_letter_ratio", "0.6") == [plain]
    assert kept("--drop", "identical,duplicates") == [marked, plain]
    assert kept("c.yaml") == [marked, plain, formula]
    assert kept("c.yaml", "--drop=[markup]") == [plain, formula]
    assert kept("c.yaml", "--min_letter_ratio", "0.7") == [marked]


@pytest.mark.parametrize(
    ("languages", "reason"),
    [
        ([], "`source_language` of a.en | a.de is not given"),
        (
            ["--source_language", "en", "--target_language", "tlh"],
            "tlh has no code that py3langid knows",
        ),
    ],
)
def test_clean_corpus_says_why_it_does_not_look_at_languages(
    folder, capsys, caplog, languages, reason
):
    (folder / "a.en").write_text("The house is old.\n")
    (folder / "a.de").write_text("La maison est vieille.\n")
    words = [
        "--train_source",
        "a.en",
        "--train_target",
        "a.de",
        *languages,
        "--output_dir",
        "o",
        "--cache_dir",
        "c",
    ]
    caplog.set_level("INFO")
    assert main(["clean-corpus", *words]) == 0
    assert "Pairs in other languages are kept." in caplog.text and reason in caplog.text
    assert "1 of 1 pairs kept" in capsys.readouterr().out
    assert main(["clean-corpus", *words, "--drop", "other_languages"]) == 2
    assert (
        "target_language" in (line := capsys.readouterr().err)
        or "source_language" in line
        or "tlh" in line
    )


def test_clean_corpus_drops_other_languages_by_default(folder):
    other = "La maison est vieille et grande."
    (folder / "c.tsv").write_text(f"The house is old.\tDas Haus ist alt.\nThat is ours.\t{other}\n")
    corpora = json.dumps([{"file": "c.tsv", "source_language": "en", "target_language": "de"}])

    def kept(*words):
        assert (
            main(
                [
                    "clean-corpus",
                    *words,
                    "--corpora",
                    corpora,
                    "--output_dir",
                    "o",
                    "--cache_dir",
                    "c",
                ]
            )
            == 0
        )
        return (folder / "o/train.en-de.de").read_text().splitlines()

    assert kept() == ["Das Haus ist alt."] and len(kept("--drop=[]")) == 2


def test_clean_corpus_finds_what_corpora_have(folder, capsys):
    """Most of each kind is found by the defaults, and at most a hundredth of the other pairs is
    lost.
    """
    draw, pairs = random.Random(0), read_demo_corpus("train", 12_000)
    draw.shuffle(pairs)
    taken = iter(pairs)

    def change(count, source, target):
        return [
            (source(pair.source), target(pair.target))
            for pair, _ in zip(taken, range(count), strict=False)
        ]

    def same(text):
        return text

    shifted = [next(taken) for _ in range(200)]
    copies = [next(taken) for _ in range(60)]
    kinds = {
        "misaligned": [
            (here.source, there.target) for here, there in zip(shifted, shifted[1:], strict=False)
        ],
        "tags": change(50, "<p>{}</p>".format, "<p>{}</p>".format),
        "entities": change(50, same, lambda text: text.replace(" ", "&nbsp;", 1) + " &amp;"),
        "long": change(
            20, lambda text: text + " and so on" * 300, lambda text: text + " und so weiter" * 220
        ),
        "copies": [
            (f"\u200b{one.source}", unicodedata.normalize("NFD", one.target)) for one in copies[:30]
        ],
        "capitals": [(one.source.upper(), one.target.upper()) for one in copies[30:]],
        "not translated": [
            (pair.source, pair.source) for pair, _ in zip(taken, range(50), strict=False)
        ],
        "mojibake": change(50, same, lambda text: f"{text} Schön.".encode().decode("cp1252")),
        "replaced": change(20, same, "{}\ufffd".format),
        "empty": change(30, same, lambda text: ""),
    }
    clean = [*copies, *taken]
    rows = [*clean, *(row for found in kinds.values() for row in found)]
    draw.shuffle(rows)
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(f"{row[side]}\n" for row in rows))
    words = [
        "--train_source",
        "a.en",
        "--train_target",
        "a.de",
        "--source_language",
        "en",
        "--target_language",
        "de",
    ]
    assert main(["clean-corpus", *words, "--output_dir", "o", "--cache_dir", "c"]) == 0
    files = [
        (folder / f"o/train.en-de.{language}").read_text().splitlines() for language in ("en", "de")
    ]
    kept = {*zip(*files, strict=True)}
    found = {name: sum(pair not in kept for pair in bad) / len(bad) for name, bad in kinds.items()}
    assert found.pop("misaligned") > 0.6
    assert (
        found.pop("copies") + sum((one.source, one.target) not in kept for one in copies[:30]) / 30
        == 1
    )
    assert found.pop("mojibake") == 1 and min(found.values()) >= 0.98, found
    assert sum(tuple(pair) not in kept for pair in clean[30:]) < 0.01 * len(clean)
    assert sum(tuple(one) in kept for one in copies[30:]) >= 29
