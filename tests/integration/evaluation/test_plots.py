"""Files of the plots. At its first use, matplotlib starts a process that looks for fonts."""

import json
import unicodedata

import matplotlib
import pytest
import torch

from tests.sweeps import rare
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation import plots
from vanilla_transformer.evaluation.plots import (
    cross_attention,
    draw_attention,
    plot_attention,
    plot_learning_curve,
    plot_lengths,
    plot_runs,
)


@pytest.fixture
def unsaved(monkeypatch):
    """Let functions return the figures that they would write."""
    monkeypatch.setattr(plots, "save_figure", lambda figure, image_file: figure)


def test_plots_are_png_files(tiny_model, tiny_tokenizer, tmp_path, real_pictures, monkeypatch):
    before = matplotlib.get_backend()
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    metrics = [
        {"step": 1, "minutes": 0.5, "loss": 3.0},
        {"step": 2, "minutes": 1.0, "validation_loss": 2.0, "bleu": 9.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in metrics))
    pictures = [
        plot_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png"),
        plot_attention(tiny_model, tiny_tokenizer, "Two dogs run.", tmp_path / "attention.png"),
    ]
    assert all(
        picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 1000
        for picture in pictures
    )
    assert matplotlib.get_backend() == "svg" != before, "a notebook's backend stays as it is"


def test_learning_curve_joins_no_points_of_different_searches(tmp_path, unsaved):
    metrics = [{"minutes": float(minute), "loss": 3.0 - minute} for minute in range(3)]
    metrics += [
        {"minutes": float(minute), "validation_loss": 2.0, "bleu": 9.0 + minute}
        for minute in (1, 2)
    ]
    final = {"minutes": 2.1, "validation_loss": 1.5, "model": "mean of checkpoints"}
    metrics += [final | {"bleu": 12.0}, final | {"bleu": 13.0}]
    lines = [json.dumps({"step": 1} | entry) + "\n" for entry in metrics]
    (tmp_path / "metrics.jsonl").write_text(
        "".join([*lines, '{"minutes": 3'])
    )  # by a run that was killed
    loss, bleu = plot_learning_curve(tmp_path / "metrics.jsonl", None).axes
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in (loss, bleu)] == [
        ("minutes", "nats per target token"),
        ("minutes", "BLEU"),
    ]
    assert (loss.get_title(), bleu.get_title()) == ("Cross-entropy", "BLEU of the validation text")
    assert [[*line.get_xdata()] for line in loss.lines] == [[0, 1, 2], [1, 2], [2.1]]
    assert [[*line.get_ydata()] for line in bleu.lines] == [[10, 11], [13]]
    names = [text.get_text() for text in bleu.get_legend().get_texts()]
    assert names == ["during training, greedy", "final model, its own search"]
    assert [text.get_text() for text in loss.get_legend().get_texts()] == [
        "training",
        "validation",
        "final model",
    ]
    assert bleu.get_ylim()[1] > 13.5, "the star of the final model is within the axes"
    assert all(axes.get_xlim()[0] == axes.get_ylim()[0] == 0 for axes in (loss, bleu))


def test_star_of_the_final_model_is_within_the_picture_whatever_came_before(tmp_path, unsaved):
    entries = [
        {"minutes": 100.9, "bleu": 0.0},
        {"minutes": 101.0, "bleu": 0.0, "validation_loss": 1.0, "model": "last"},
    ]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": 1} | entry) + "\n" for entry in entries)
    )
    figure = plot_learning_curve(tmp_path / "metrics.jsonl", None)
    figure.draw_without_rendering()
    for axes in figure.axes:
        star, box = axes.lines[-1], axes.get_window_extent()
        (x, y), radius = (
            axes.transData.transform(star.get_xydata()[0]),
            star.get_markersize() / 2 * figure.dpi / 72,
        )
        assert star.get_marker() == "*" and not star.get_clip_on()
        assert x + radius < box.x1 and y + radius < box.y1 and y >= box.y0


def test_plot_runs_draws_each_run_in_its_color(tmp_path, unsaved):
    for name, bleu in (("a", 9.0), ("b", 12.0)):
        entry = {"step": 100, "minutes": 2.0, "validation_loss": 2.0, "bleu": bleu, "chrf": 30.0}
        (tmp_path / name).mkdir()
        lines = (
            json.dumps(each) + "\n"
            for each in ({"loss": 1.0}, entry, entry | {"step": 200, "model": "last"})
        )
        (tmp_path / name / "metrics.jsonl").write_text("".join(lines))
    panels = plot_runs([tmp_path / "a", tmp_path / "b"], None, "step").axes
    assert [panel.get_ylabel() for panel in panels] == ["nats per target token", "BLEU", "chrF"]
    assert [[*line.get_ydata()] for line in panels[1].lines] == [[9.0], [9.0], [12.0], [12.0]]
    assert [[*line.get_xdata()] for line in panels[2].lines] == [[100], [200]] * 2 and panels[
        2
    ].get_xlabel() == "step"
    names = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert names == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert len({line.get_color() for line in panels[0].lines}) == 2


def draw_labels(labels, folder):
    weights = torch.ones(1, len(labels), len(labels))
    return plots.save_figure(draw_attention(labels, labels, weights), folder / "a.png")


@pytest.mark.filterwarnings("error::UserWarning")
def test_pictures_name_the_scripts_that_no_font_has_in_one_line(
    tmp_path, caplog, real_pictures, monkeypatch
):
    manager = matplotlib.font_manager.fontManager
    monkeypatch.setattr(
        manager, "ttflist", [font for font in manager.ttflist if font.name.startswith("DejaVu")]
    )
    assert draw_labels(["ñ", "你好", "ខ្មែរ", "$x$", "\u200b"], tmp_path).stat().st_size > 1000
    (line,) = caplog.messages
    assert "none has Han, Khmer. Install" in line


def test_pictures_take_further_fonts_for_characters_that_the_first_lacks(tmp_path, caplog):
    def characters(family):
        path = matplotlib.font_manager.findfont(
            matplotlib.font_manager.FontProperties(family=[family])
        )
        return {*map(chr, matplotlib.font_manager.get_font(path).get_charmap())}

    lacking = {
        each
        for each in characters("STIXGeneral") - characters("DejaVu Sans")
        if unicodedata.category(each) == "So"
    }
    families, missing = plots.find_fonts(f"ñ{min(lacking)}", ["sans-serif"])
    assert families[0] == "sans-serif" and len(families) == 2 and not missing
    assert plots.find_fonts("ñ", ["sans-serif"]) == (["sans-serif"], "")


@pytest.mark.parametrize("heads", [4, 7])
def test_attention_has_a_panel_for_each_head_and_one_colorbar(heads):
    source, target = ["a", "·b", "</s>"], ["c", "</s>"]
    weights = torch.rand(heads, 2, 3)
    figure = draw_attention(source, target, weights)
    *panels, colorbar = figure.axes
    assert colorbar.get_ylabel() == "attention weight" and colorbar.get_ylim() == (0, 1)
    shown = [panel for panel in panels if panel.images]
    assert [panel.get_title() for panel in shown] == [
        f"head {number + 1}" for number in range(heads)
    ]
    assert all(
        (panel.images[0].get_array() == head.numpy()).all()
        for panel, head in zip(shown, weights, strict=True)
    )
    labels = [
        [text.get_text() for text in shown[0].get_yticklabels()],
        [x.get_text() for x in shown[-1].get_xticklabels()],
    ]
    assert labels == [target, source]
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("source", "translation")
    assert [panel.xaxis.get_tick_params()["labelbottom"] for panel in shown] == [
        number + 4 >= heads for number in range(heads)
    ]


@pytest.mark.parametrize(
    ("length", "heads", "columns", "panels"),
    [
        *(
            (3, heads, None, panels)
            for heads, panels in ((1, 1), (2, 2), (3, 3), (5, 6), (6, 6), (7, 8))
        ),
        *((3, 8, 4, 8), (15, 8, 2, 8)),
        *(rare((length, 8, columns, 8)) for length, columns in ((11, 4), (26, 2), (60, 1))),
    ],
)
def test_attention_fits_a_page_with_readable_labels_and_few_empty_panels(
    length, heads, columns, panels
):
    figure = draw_attention(["x"] * length, ["y"] * length, torch.rand(heads, length, length))
    *found, _ = figure.axes  # the colorbar
    widths = {panel.get_position().x0 for panel in found}
    assert len(found) == panels and columns in (None, len(widths))
    assert (
        figure.get_size_inches()[0] < 15
        and figure.get_size_inches()[0] / len(widths) / length > 0.17
    )  # of a label


def test_attention_marks_subwords_that_continue_a_word(tiny_model):
    texts = ["ab ab ab, cd cd cd."] * 9
    tokenizer = train_tokenizer(texts, 262)
    source, _, _ = cross_attention(tiny_model, tokenizer, "ab dc ü.")
    assert source[-2:] == [".", "</s>"] and source[0] in ("ab", "a")
    assert (
        "d" in source
        and "·c" in source
        and not any(text.startswith(" ") or "▁" in text for text in source)
    )
    assert "…" in source and "ü" in source  # one byte, and the other one, which ends the character


def test_lengths_end_where_the_pairs_end(tmp_path, unsaved):
    counts = {"kept": [0, 5, 9] + [0] * 47, "dropped": [0, 0, 0, 2] + [0] * 46}
    ratios = {"kept": [0] * 20 + [3] + [0] * 27, "dropped": [0] * 48}
    report = {"cleaning": {"histograms": {"source": counts, "target": counts, "ratio": ratios}}}
    (tmp_path / "corpus.json").write_text(json.dumps(report))
    source, _, ratio = plot_lengths(tmp_path / "corpus.json", None).axes
    kept, dropped = (patch.get_data() for patch in source.patches)
    assert (
        [*kept.edges] == [10, 20, 30, 40]
        and [*kept.values] == [5, 9, 0]
        and [*dropped.values] == [0, 0, 2]
    )
    assert source.get_xlabel() == "characters of the source" and source.get_ylabel() == "pairs"
    assert [text.get_text() for text in ratio.get_legend().get_texts()] == ["kept"]


@pytest.mark.parametrize(
    ("plot", "name", "words"),
    [
        (plot_learning_curve, "metrics.jsonl", "metrics.jsonl"),
        (plot_lengths, "none.json", "none.json"),
        (plot_lengths, "corpus.json", "corpus.json must count the lengths"),
    ],
)
def test_plots_refuse_files_that_they_cannot_show(tmp_path, plot, name, words):
    (tmp_path / "corpus.json").write_text(json.dumps({"cleaning": {"read": 1}}))
    with pytest.raises((UserError, FileNotFoundError), match=words):
        plot(tmp_path / name, tmp_path / "picture.png")


def test_cross_attention_rows_sum_to_one_and_the_implementation_stays(tiny_model, tiny_tokenizer):
    before = tiny_model.config._attn_implementation
    source, target, heads = cross_attention(tiny_model, tiny_tokenizer, "A man is sleeping.")
    assert heads.shape == (tiny_model.config.decoder_attention_heads, len(target), len(source))
    torch.testing.assert_close(heads.sum(dim=-1), torch.ones(heads.shape[:2]))
    assert "".join(source).startswith("A") and source[-1] == "</s>"
    assert tiny_model.config._attn_implementation == before != "eager"


def test_token_labels_mark_words_that_continue_with_marks(monkeypatch):
    monkeypatch.setattr(
        plots,
        "token_texts",
        lambda tokenizer, ids, as_source: [" कम", "रा", "ि", " है", "।", " a", "e\u0301", "\x7f"],
    )
    assert plots.token_labels(None, []) == ["कम", "·रा", "·ि", "है", "।", "a", "·e\u0301", "U+007F"]
