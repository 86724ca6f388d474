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


PNG = b"\x89PNG"


def write_metrics(folder, entries):
    lines = [json.dumps({"step": 1} | entry) + "\n" for entry in entries]
    (folder / "metrics.jsonl").write_text("".join(lines))


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def points_of(lines, axis):
    """Return the coordinates of the points of lines, on the axis x or y."""
    return [[*getattr(line, f"get_{axis}data")()] for line in lines]


def test_plots_are_png_files(tiny_model, tiny_tokenizer, tmp_path, real_pictures, monkeypatch):
    before = matplotlib.get_backend()
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    metrics = [
        {"step": 1, "minutes": 0.5, "loss": 3.0},
        {"step": 2, "minutes": 1.0, "validation_loss": 2.0, "bleu": 9.0},
    ]
    write_metrics(tmp_path, metrics)
    curve, attention = tmp_path / "curve.png", tmp_path / "attention.png"
    plot_learning_curve(tmp_path / "metrics.jsonl", curve)
    plot_attention(tiny_model, tiny_tokenizer, "Two dogs run.", attention)
    for picture in (curve, attention):
        assert picture.read_bytes().startswith(PNG) and picture.stat().st_size > 1000
    assert matplotlib.get_backend() == "svg" != before, "a notebook's backend stays"


def test_learning_curve_joins_no_different_searches(tmp_path, unsaved):
    metrics = [{"minutes": float(minute), "loss": 3.0 - minute} for minute in range(3)]
    for minute in (1.0, 2.0):
        entry = {"minutes": minute, "validation_loss": 2.0, "bleu": 9.0 + minute}
        metrics.append(entry)
    final = {"minutes": 2.1, "validation_loss": 1.5, "model": "mean of checkpoints"}
    metrics += [final | {"bleu": 12.0}, final | {"bleu": 13.0}]
    write_metrics(tmp_path, metrics)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"minutes": 3')  # by a run that was killed
    loss, bleu = plot_learning_curve(tmp_path / "metrics.jsonl", None).axes
    assert loss.get_xlabel() == bleu.get_xlabel() == "minutes"
    assert loss.get_ylabel() == "nats per target token" and bleu.get_ylabel() == "BLEU"
    assert loss.get_title() == "Cross-entropy"
    assert bleu.get_title() == "BLEU of the validation text"
    assert points_of(loss.lines, "x") == [[0, 1, 2], [1, 2], [2.1]]
    assert points_of(bleu.lines, "y") == [[10, 11], [13]]
    names = ["during training, greedy", "final model, its own search"]
    assert legend_of(bleu) == names
    assert legend_of(loss) == ["training", "validation", "final model"]
    assert bleu.get_ylim()[1] > 13.5, "the star of the final model is within the axes"
    assert all(axes.get_xlim()[0] == axes.get_ylim()[0] == 0 for axes in (loss, bleu))


def test_star_of_the_final_model_is_within_the_picture(tmp_path, unsaved):
    entries = [
        {"minutes": 100.9, "bleu": 0.0},
        {"minutes": 101.0, "bleu": 0.0, "validation_loss": 1.0, "model": "last"},
    ]
    write_metrics(tmp_path, entries)
    figure = plot_learning_curve(tmp_path / "metrics.jsonl", None)
    figure.draw_without_rendering()
    for axes in figure.axes:
        star, box = axes.lines[-1], axes.get_window_extent()
        x, y = axes.transData.transform(star.get_xydata()[0])
        radius = star.get_markersize() / 2 * figure.dpi / 72
        assert star.get_marker() == "*" and not star.get_clip_on()
        assert x + radius < box.x1 and y + radius < box.y1 and y >= box.y0


def test_plot_runs_draws_each_run_in_its_color(tmp_path, unsaved):
    for name, bleu in (("a", 9.0), ("b", 12.0)):
        entry = {"step": 100, "minutes": 2.0, "validation_loss": 2.0}
        entry |= {"bleu": bleu, "chrf": 30.0}
        last = entry | {"step": 200, "model": "last"}
        (tmp_path / name).mkdir()
        write_metrics(tmp_path / name, [{"loss": 1.0}, entry, last])
    panels = plot_runs([tmp_path / "a", tmp_path / "b"], None, "step").axes
    labels = ["nats per target token", "BLEU", "chrF"]
    assert [panel.get_ylabel() for panel in panels] == labels
    losses, bleu, chrf = panels
    assert points_of(bleu.lines, "y") == [[9.0], [9.0], [12.0], [12.0]]
    assert points_of(chrf.lines, "x") == [[100], [200]] * 2
    assert chrf.get_xlabel() == "step"
    assert legend_of(losses) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert len({line.get_color() for line in losses.lines}) == 2


def draw_labels(labels, folder):
    weights = torch.ones(1, len(labels), len(labels))
    return plots.save_figure(draw_attention(labels, labels, weights), folder / "a.png")


@pytest.mark.filterwarnings("error::UserWarning")
def test_pictures_name_the_scripts_that_no_font_has(tmp_path, caplog, real_pictures, monkeypatch):
    manager = matplotlib.font_manager.fontManager
    fonts = [font for font in manager.ttflist if font.name.startswith("DejaVu")]
    monkeypatch.setattr(manager, "ttflist", fonts)
    picture = draw_labels(["ñ", "你好", "ខ្មែរ", "$x$", "\u200b"], tmp_path)
    assert picture.stat().st_size > 1000
    (line,) = caplog.messages
    assert "none has Han, Khmer. Install" in line


def test_pictures_take_further_fonts_for_lacking_characters(tmp_path, caplog):
    manager = matplotlib.font_manager

    def characters(family):
        path = manager.findfont(manager.FontProperties(family=[family]))
        return {*map(chr, manager.get_font(path).get_charmap())}

    further = characters("STIXGeneral") - characters("DejaVu Sans")
    lacking = {text for text in further if unicodedata.category(text) == "So"}
    families, missing = plots.find_fonts(f"ñ{min(lacking)}", ["sans-serif"])
    assert families[0] == "sans-serif" and len(families) == 2 and not missing
    assert plots.find_fonts("ñ", ["sans-serif"]) == (["sans-serif"], "")


@pytest.mark.parametrize("heads", [4, 7])
def test_attention_has_a_panel_for_each_head(heads):
    source, target = ["a", "·b", "</s>"], ["c", "</s>"]
    weights = torch.rand(heads, 2, 3)
    figure = draw_attention(source, target, weights)
    *panels, colorbar = figure.axes
    assert colorbar.get_ylabel() == "attention weight" and colorbar.get_ylim() == (0, 1)
    shown = [panel for panel in panels if panel.images]
    for number, panel in enumerate(shown):
        assert panel.get_title() == f"head {number + 1}"
        assert (panel.images[0].get_array() == weights[number].numpy()).all()
        is_last = number + 4 >= heads
        assert panel.xaxis.get_tick_params()["labelbottom"] == is_last
    assert len(shown) == heads
    assert [text.get_text() for text in shown[0].get_yticklabels()] == target
    assert [text.get_text() for text in shown[-1].get_xticklabels()] == source
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("source", "translation")


PANELS = [(3, heads, None, heads) for heads in (1, 2, 3, 6)]
PANELS += [(3, 5, None, 6), (3, 7, None, 8), (3, 8, 4, 8), (15, 8, 2, 8)]
PANELS += [rare((11, 8, 4, 8)), rare((26, 8, 2, 8)), rare((60, 8, 1, 8))]


@pytest.mark.parametrize(("length", "heads", "columns", "panels"), PANELS)
def test_attention_fits_a_page_with_readable_labels(length, heads, columns, panels):
    """Leave few panels empty."""
    weights = torch.rand(heads, length, length)
    figure = draw_attention(["x"] * length, ["y"] * length, weights)
    *shown, _ = figure.axes  # the colorbar
    widths = {panel.get_position().x0 for panel in shown}
    assert len(shown) == panels and columns in (None, len(widths))
    inches = figure.get_size_inches()[0]
    assert inches < 15 and inches / len(widths) / length > 0.17, "of a label"


def test_attention_marks_subwords_that_continue_a_word(tiny_model):
    texts = ["ab ab ab, cd cd cd."] * 9
    tokenizer = train_tokenizer(texts, 262)
    source, _, _ = cross_attention(tiny_model, tokenizer, "ab dc ü.")
    assert source[-2:] == [".", "</s>"] and source[0] in ("ab", "a")
    assert "d" in source and "·c" in source
    assert not any(text.startswith(" ") or "▁" in text for text in source)
    # One byte, and the other one, which ends the character.
    assert "…" in source and "ü" in source


def test_lengths_end_where_the_pairs_end(tmp_path, unsaved):
    counts = {"kept": [0, 5, 9] + [0] * 47, "dropped": [0, 0, 0, 2] + [0] * 46}
    ratios = {"kept": [0] * 20 + [3] + [0] * 27, "dropped": [0] * 48}
    histograms = {"source": counts, "target": counts, "ratio": ratios}
    report = {"cleaning": {"histograms": histograms}}
    (tmp_path / "corpus.json").write_text(json.dumps(report))
    source, _, ratio = plot_lengths(tmp_path / "corpus.json", None).axes
    kept, dropped = (patch.get_data() for patch in source.patches)
    assert [*kept.edges] == [10, 20, 30, 40]
    assert [*kept.values] == [5, 9, 0] and [*dropped.values] == [0, 0, 2]
    assert source.get_xlabel() == "characters of the source"
    assert source.get_ylabel() == "pairs"
    assert legend_of(ratio) == ["kept"]


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


def test_cross_attention_rows_sum_to_one(tiny_model, tiny_tokenizer):
    """Leave the implementation as it is."""
    before = tiny_model.config._attn_implementation
    text = "A man is sleeping."
    source, target, heads = cross_attention(tiny_model, tiny_tokenizer, text)
    count = tiny_model.config.decoder_attention_heads
    assert heads.shape == (count, len(target), len(source))
    torch.testing.assert_close(heads.sum(dim=-1), torch.ones(heads.shape[:2]))
    assert "".join(source).startswith("A") and source[-1] == "</s>"
    assert tiny_model.config._attn_implementation == before != "eager"


def test_token_labels_mark_words_that_continue_with_marks(monkeypatch):
    texts = [" कम", "रा", "ि", " है", "।", " a", "e\u0301", "\x7f"]
    monkeypatch.setattr(plots, "token_texts", lambda *_, **__: texts)
    labels = ["कम", "·रा", "·ि", "है", "।", "a", "·e\u0301", "U+007F"]
    assert plots.token_labels(None, []) == labels
