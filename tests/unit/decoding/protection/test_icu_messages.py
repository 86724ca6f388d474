"""ICU messages: texts of branches, and messages with other texts."""

import time

import pytest

from vanilla_transformer.decoding.protection.icu_messages import (
    complete_plurals,
    parse_message,
)
from vanilla_transformer.decoding.translations import Translation


def texts_of(message):
    return [branch.text for branch in message.messages()]


def shout(message):
    return render(message, *map(str.upper, texts_of(message)))[0]


def render(message, *texts):
    """Return the message with texts, and where its syntax is."""
    rendered, moved = message.render(map(Translation, texts))
    return rendered.text, moved


@pytest.mark.parametrize(
    ("text", "texts", "shouted"),
    [
        (
            "You have {count, plural, =0 {none} one {# file} other {# files}} left.",
            ["You have {0} left.", "none", "{0} file", "{0} files"],
            "YOU HAVE {count, plural, =0 {NONE} one {# FILE} other {# FILES}} LEFT.",
        ),
        (
            "{g, select, male {{n, plural, offset:1 one {his # of {x}} other {a}}} other { they }}",
            ["{0}", "{0}", "his {0} of {1}", "a", "they"],
            "{g, select, male {{n, plural, offset:1 one {HIS # OF {x}} other {A}}} other { THEY }}",
        ),
        (
            "I''m {n, selectordinal, other {don't '#' '{'x'}' #}} # {d, date, short}",
            ["I'm {0} # {1}", "don't {0} {1}x{2} {3}"],
            "I''M {n, selectordinal, other {DON''T '#' '{'X'}' #}} # {d, date, short}",
        ),
        (
            "{n, choice, 0#a|1<{b}} {n, plural, other {x}}",
            ["{0} {1}", "x"],
            "{n, choice, 0#a|1<{b}} {n, plural, other {X}}",
        ),
    ],
)
def test_parse_message_finds_the_texts_of_branches(text, texts, shouted):
    message = parse_message(text)
    assert texts_of(message) == texts and shout(message) == shouted


@pytest.mark.parametrize(
    ("text", "translation", "written"),
    [
        ("{n, plural, one {It's} other {#}}", "It's", "It's"),
        ("{n, plural, one {It''s} other {#}}", "It's", "It''s"),
        ("{n, plural, one {{x} dogs} other {#}}", "l'{0} dogs'", "l''{x} dogs''"),
        ("{n, plural, one {abc} other {#}}", "QQ Qs".replace("Q", "'"), "QQQ Qs".replace("Q", "'")),
    ],
)
def test_render_doubles_apostrophes_as_the_source(text, translation, written):
    message = parse_message(text)
    rendered, _ = render(message, "{0}", translation, "{0}")
    branch = text[text.index("{", 1) + 1 : text.index("} other")]
    assert rendered == text.replace(branch, written)


WITHOUT_BRANCHES = ["{name} left", "{n, plural, one {x}", "{n, plural, one x}"]
WITHOUT_BRANCHES += ["{n, plural, other {x}} }", "{n, choice, 0#a|1#b}"]


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("{n, plural, one{#} other{#s}}", "{n, plural, one{#} few{#s} many{#s} other{#s}}"),
        (
            "{n, plural,\n  one {# it's}\n  other {'{'#}\n}, {g, select, a{b}}",
            "{n, plural,\n  one {# it's}\n  few {'{'#}\n  many {'{'#}\n  other {'{'#}\n}, {g, select, a{b}}",
        ),
        (
            "{g, select, a{{n,plural,offset:1 other{x} =1{y}}} other{z}}",
            "{g, select, a{{n,plural,offset:1 one{x} few{x} many{x} other{x} =1{y}}} other{z}}",
        ),
        (
            "{n, plural, one{{m, plural, other{b}}} other{a}}",
            "{n, plural, one{{m, plural, other{b}}} few{a} many{a} other{a}}",
        ),
        ("{n, selectordinal, one{a} other{b}}", "{n, selectordinal, one{a} two{b} other{b}}"),
        ("{n, plural, one{a}}", None),
        ("{n, plural, one{it''s} few{'a'} many{} other{don't}}", None),
        ("{n, select, one{a} other{b}} {n} it's", None),
    ],
)
def test_complete_plurals_adds_categories_before_other(text, completed):
    categories = {"plural": ["one", "few", "many", "other"], "selectordinal": ["two", "other"]}
    assert complete_plurals(text, categories) == (completed or text)
    assert complete_plurals(text, {}) == text


@pytest.mark.parametrize("text", WITHOUT_BRANCHES)
def test_parse_message_returns_none_without_branches_or_matching_braces(text):
    assert parse_message(text) is None


def test_render_quotes_what_would_be_syntax():
    message = parse_message("{n, plural, one {a} other {# b}}")
    rendered, _ = render(message, "{0}", "l'{7}", "{0}#'s")
    assert rendered == "{n, plural, one {l'''{'7'}'} other {#'#'''s}}"


@pytest.mark.parametrize(
    "text",
    [
        "{a,plural,other{" * 3000 + "}}" * 3000,
        "{a,plural,other{" * 8000,
        "{a,plural,other{x}}" * 3000,
        "''" * 100_000 + "{a,plural,other{x}}",
    ],
)
def test_parse_message_takes_linear_time(text):
    started = time.process_time()
    parse_message(text)
    assert time.process_time() - started < 5


def test_message_tells_where_its_syntax_is_in_the_source_and_in_a_rendered_text():
    text = "it''s {name} or {n, plural, one {a} other {b}}!"
    message = parse_message(text)
    rendered, moved = render(message, "{1}! l'{0}", "A", "B")
    syntax = [text[slice(*span)] for _, span in message.moved]
    assert syntax == ["{name}", "{n, plural, one {a} other {b}}"]
    assert [message.text[slice(*span)] for span, _ in message.moved] == ["{0}", "{1}"]
    syntax = [rendered[slice(*span)] for _, span in moved]
    assert syntax == ["{n, plural, one {A} other {B}}", "{name}"]
