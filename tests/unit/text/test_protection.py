"""Where text to keep is, and where it is found again in a translation."""

import time
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.sweeps import examples
from vanilla_transformer.text.protection import (
    KINDS,
    are_two_words,
    find_protected,
    find_texts,
    kind_of,
    locate,
    merge,
)

DOCS = Path(__file__).parents[3] / "docs" / "terms_and_markup.md"


EXAMPLES = [example for kind in KINDS.values() for example in kind.examples]


def kept(text):
    return [text[start:end] for start, end in find_protected(text)]


def test_docs_have_each_kind_with_its_examples():
    table = DOCS.read_text().partition("| kind | examples |\n|---|---|\n")[2]
    rows = []
    for name, kind in KINDS.items():
        examples_of_kind = ", ".join(map(as_code, kind.examples))
        rows.append(f"| {name} | {examples_of_kind} |")
    assert table.partition("\n\n")[0].splitlines() == rows


def as_code(text):
    """Return a text as code in a cell of a Markdown table."""
    if "`" in text:
        return f"`` {text} ``"
    return "`" + text.replace("|", "\\|") + "`"


@pytest.mark.parametrize("example", EXAMPLES)
def test_find_protected_finds_each_example(example):
    text = f"a {example} b"
    assert kept(text) == [example] and find_protected(text, protect=False) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%d日 %d일 {name}さん %sです %1日 %dMB", ["%d", "%d", "{name}", "%s", "%1", "%d"]),
        ("%{count} #{name} @{name} ${name}", ["%{count}", "#{name}", "@{name}", "${name}"]),
        ("{{count}} {{ name }} {{name|upper}}", ["{{count}}", "{{ name }}", "{{name|upper}}"]),
        (
            "%d%% %ld %zu %-5.2f %name% %(a)s%%",
            ["%d%%", "%ld", "%zu", "%-5.2f", "%name%", "%(a)s%%"],
        ),
        ("%#@files@, %1$#@in folders@ and %@", ["%#@files@", "%1$#@in folders@", "%@"]),
        ("__COUNT__ :name <name> </b> $t(key) #tag @name", None),
        (r"C:\Users\me ~/x /usr/bin/env ../.. v1.2.3 v2 %APPDATA%\x \\a\b", None),
        ("C:\\Program Files\\x y C:/a/b and/or", ["C:\\Program Files\\x", "C:/a/b"]),
        (
            "ISBN 978-3-16-148410-0, DE89 3704 0044 0532 0130 00.",
            ["ISBN 978-3-16-148410-0", "DE89 3704 0044 0532 0130 00"],
        ),
        ("Tel. +49 30 901820 or 030 901820", ["+49 30 901820", "030 901820"]),
        ("run `a + b` and `foo' and `bar'", ["`a + b`"]),
        ("$nameさん v1.2.3です /usr/binに #タグ", ["$name", "v1.2.3", "/usr/bin", "#タグ"]),
        ("https://a.b/xを開く me@a.bまで 日本me@a.b", ["https://a.b/x", "me@a.b", "me@a.b"]),
        ("日本@name 日本v1.2 日本%1", ["@name", "v1.2", "%1"]),
        ("2024年 第123号 123원 3000万", ["2024", "123", "123"]),
        ("x{a}%s{b}y 100{unit}", ["{a}%s{b}", "100{unit}"]),
        ("{n, plural, one {# {a}} other {'{'#}} {n, number, integer} {$x}", None),
        ("{n, plural, one {", []),
        ("see www.a.de", ["www.a.de"]),
        (
            "{% if x %} {{{x}}} %r %n &nbsp;&#39;&#x2013; @:key :no-index: C:/Users/me file:///a "
            "ssh://u@h:1/a",
            None,
        ),
        ("1.2.3-beta.1+b5 1.2.3rc1 2.0b1 2024-01-02T03:04:05Z 192.168.0.0/24 1.000.000,50", None),
        (
            "%Y-%m-%d https://a.b/{id}. (https://a.b/{{x}}/?y={y}), Https://a.b/%(v)s",
            ["%Y", "%m", "%d", "https://a.b/{id}", "https://a.b/{{x}}/?y={y}", "Https://a.b/%(v)s"],
        ),
        # Qt's placeholders touch words if no conversion of printf fits.
        ("%1timed %1MB %1mb %12ago %L1abc %1Link", ["%1", "%1", "%1", "%12", "%L1", "%1"]),
        ("%1s %1d %10d %5jd %1td %1Lf %1$s %n", None),
        ("50 %ig 100%ige 5%1 5 %1 %nabc %1_a %1% %1.5", ["100", "%1_a", "1.5"]),
        # Units that programs write at a placeholder, and endings of names
        ("%1$dh %2$dm %dd %ldd %1y %.1fx %sK %1ms {0}d {hours}h {{n}}px {seconds}s", None),
        ("{name}s {name}y {n}MB %dth {% if x %}m", ["{name}", "{name}", "{n}", "%d", "{% if x %}"]),
        # Signs that no writing has, and shapes of code
        (
            "The [X5X] file ⟦1⟧ [[1]] ##NAME## $USER$!",
            ["[X5X]", "⟦1⟧", "[[1]]", "##NAME##", "$USER$"],
        ),
        (
            "Use -v, --verbose (or '--quiet') and pip install -U x",
            ["-v", "--verbose", "--quiet", "-U"],
        ),
        (
            "See index.html, foo() (or bar()). Press Ctrl+C",
            ["index.html", "foo()", "bar()", "Ctrl+C"],
        ),
        ("Pct_Paid_on_Time PATH= C++ C# std::string git(1) x->y a|b x^2 {name}.txt --a=<b>", None),
        (
            "[b]Note[/b] [method foo] [url=https://a.b]it[/url]",
            ["[b]", "[/b]", "[method foo]", "[url=https://a.b]", "[/url]"],
        ),
        (
            "US$30, A$5-a-day, HK$1,200.50 30 US$ $30 US$3万",
            ["US$30", "A$5", "HK$1,200.50", "$30", "$3"],
        ),
        ("使用--all选项和-v", ["--all", "-v"]),
        ('Call print("x") now', ['print("x")']),
        (
            "Set $HOME/.x, request.META, re.M and *.c, or see a.com/b.",
            ["$HOME/.x", "request.META", "re.M", "*.c", "a.com/b"],
        ),
        ("-vvv -j4 refs/tags/ Ok(()) Matrix(...) *-ab.jpg object.__init__", None),
        (
            "see -v2 or -O3, X.Y.Z, 5.x, char(32) --filter=blob:none",
            ["-v2", "-O3", "X.Y.Z", "5.x", "char(32)", "--filter=blob:none"],
        ),
        (r"\p and \v 1", [r"\p", r"\v"]),
        ("f(g(x='a')) then", ["f(g(x='a'))"]),
        (
            "Use view(response), str(t) and int(float(x)), not file(s), niveau(x) or Datei(en).",
            ["view(response)", "str(t)", "int(float(x))"],
        ),
        (
            "pathlib.Path is read. It ends here.Then the name (re.Match) is a logging.Filter.",
            ["pathlib.Path", "re.Match", "logging.Filter"],
        ),
        (
            "- A scrapy.Request is here, and the enum.Enum object of logging.Filter classes runs.",
            ["scrapy.Request", "enum.Enum", "logging.Filter"],
        ),
        ("Open client-2.tac in licenses/ twice.", ["client-2.tac", "licenses/"]),
        (
            "Files: *_test.py, *-0001.jpg, js/*, lib/rm.c, d.tzinfo and _static in .htaccess.",
            ["*_test.py", "*-0001.jpg", "js/*", "lib/rm.c", "d.tzinfo", "_static", ".htaccess"],
        ),
        (
            '-C: the option -Wall with -fno-exceptions --a="b,c", Haupt- und -nebentext',
            ["-C", "-Wall", "-fno-exceptions", '--a="b,c"'],
        ),
        ("2.0.dev and 1.3dev", ["2.0.dev", "1.3dev"]),
        ("see 1.1RC1 or 1.0c1 or 2.0alpha1", ["1.1RC1", "1.0c1", "2.0alpha1"]),
        (
            "The _orm.Session or .query.Query of a per-_schema.Table",
            ["_orm.Session", ".query.Query", "per-_schema.Table"],
        ),
        (
            "the queue.Queue is a models.Model with pathlib.Path in it",
            ["queue.Queue", "models.Model", "pathlib.Path"],
        ),
        (
            "the graph has G.nodes, and d.addCallback or a.www.plugin has REQUEST.SESSION twice",
            ["G.nodes", "d.addCallback", "a.www.plugin", "REQUEST.SESSION"],
        ),
        ("The kombu.Connection is here. The kombu.Queue is", ["kombu.Connection", "kombu.Queue"]),
        # Names that look like words, beside text of programs, and two of one module
        ("to inherit from pb.Root in a_b, or G.adj is", ["pb.Root", "a_b", "G.adj"]),
        ("either typing.Union or typing.Optional is", ["typing.Union", "typing.Optional"]),
        ("It has A.id and the A.bs here", ["A.id", "A.bs"]),
        ("Call a_b first.Then it ends.It is", ["a_b"]),
        (
            "We use the auth.User model and normal threading.Lock objects.",
            ["auth.User", "threading.Lock"],
        ),
        (
            "see repr(C), O(n), select(BigTable) and VARCHAR(255)",
            ["repr(C)", "O(n)", "select(BigTable)", "VARCHAR(255)"],
        ),
        (
            "use src/bin/a.rs, .d.ts and the -Zgc flag with color-lighten or -lighten-1",
            ["src/bin/a.rs", ".d.ts", "-Zgc", "-lighten-1"],
        ),
    ],
)
def test_find_protected_finds_fields_whole(text, expected):
    if expected is None:
        assert "".join(kept(text)).replace(" ", "") == text.replace(" ", "")
    else:
        assert kept(text) == expected


ORDINARY = ["50 % sind", "50 %ige", "e.g.", "and/or", "#1", "Note: name", "he /she", "km/h"]
ORDINARY += ["100% sure", "50%discount", "a < b", "R&D", ":D", "I'm @ home"]
ORDINARY += ["5 %, 7 %", "%-Satz", "www", "a: b", "{ a b }", "1 / 2", "Tel. 12"]
ORDINARY += ["%88 puan", "%80'ini", '"true":ksi', "Excalidraw+:aan", "AT&T", "drag&drop", "[1]"]
ORDINARY += ["35°W", "60km/h", "UTC+1", "18+", "p.m.", "z.B.", "a.k.a.", "Ph.D.s"]
ORDINARY += ["(s)he", "file(s)", "Tom -and -Ann", "well--I", "[laughs]", "{see below}", "*no*"]
ORDINARY += ["*so*", "EE.UU", "Mr.Net", "a *.", "Yes (...)", "no/yes/maybe", "to go.Communism is"]
ORDINARY += ["- Yes. -I know.", "-Hola", "…and", "wait...what", "U.S.-based", "gut^^", "_so_", "<3"]
ORDINARY += [
    "Haupt- und -text",
    "Sanomat -lehti",
    "the kombu.Queue is",
    "the park.Tom objects.",
    "in his car.Tom objects to it",
    "urgent but.She left.Tom is",
    "EE.UU y EE.UU",
    "J.Smith and J.Adams",
    "STOP.WAIT.NOW",
    "vitamin(e) A.b is",
    "It ends here.The object",
    "Il est fini.Cette instance",
    "COVID-9.Then",
    "men/women",
    "he/ she",
    "a(z) x",
    "_so so_",
    "jeu(x)",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_find_protected_leaves_ordinary_text_alone(text):
    assert all(part.isdecimal() for part in kept(text))


pieces = st.sampled_from(EXAMPLES) | st.sampled_from("".join(EXAMPLES))
pieces |= st.sampled_from("aéé日가ℹ™٣Ⅷ \n.,'\"()-")
EXPRESSIONS = [expression for kind in KINDS.values() for expression in kind.expressions]


@examples(500)
@given(st.lists(pieces).map("".join))
def test_find_protected_takes_the_first_expression_of_the_table_that_fits(text):
    expressions = "|".join(f"(?:{expression})" for expression in EXPRESSIONS)
    plain = regex.compile(f"(?:{expressions})++", regex.V1)
    text += " %1"  # without one, %88 is a percentage
    ranges = find_protected(text)
    named = [match.span() for match in plain.finditer(text)]
    assert merge([*ranges, *named]) == ranges  # or within a run that is no language
    for span in {*ranges}.difference(named):
        assert regex.search(r"[_=\\|+#:\-(.*^~<{@}$]", text[slice(*span)])


KINDS_OF = {"%1$s": "placeholder", "[X5X]": "placeholder", "$11 000": "number", "--all": "other"}
KINDS_OF |= {"$1": "placeholder", "$5": "number", "a.b.org": "url", "a.b.c": "other"}
KINDS_OF |= {"https://a.b/{x}": "url", "`a b`": "code", "[/b]": "tag", "index.html": "other"}


@pytest.mark.parametrize(("text", "kind"), KINDS_OF.items())
def test_kind_of_names_the_kind_of_a_piece(text, kind):
    assert kind_of(text) == kind


@pytest.mark.parametrize(
    ("texts", "translation", "expected"),
    [
        (["https://a.b"], "Siehe https://a.b jetzt.", [(6, 17)]),
        (["https://a.b"], "Siehe https://a.bäle jetzt.", None),
        (["https://a.b"], "Смотри https://a.bя", None),
        (["123"], "1234", None),
        (["123"], "第123号", [(1, 4)]),
        (["{a}", "{b}", "{a}"], "{b}x{a} {a}", [(4, 7), (0, 3), (8, 11)]),
        (["{a}", "{a}"], "{a} {b}", None),
        (["{a}"], "{a} {a}", None),
        (["%d"], "%dDateien", [(0, 2)]),
        (["123"], "123,45", None),
        (["%s", "{name}"], "x {name}%s", [(8, 10), (2, 8)]),
    ],
)
def test_locate_finds_no_part_of_a_longer_word(texts, translation, expected):
    assert locate(texts, translation) == expected


@pytest.mark.parametrize(
    ("text", "translation", "is_found"),
    [
        ("123", "ที่123", True),
        ("กา", "กาแฟ", True),
        ("กา", "กา\u0e48", False),
        ("cafe", "cafe\u0301", False),
        ("❤", "❤\ufe0f", True),
        ("ཀ", "ཀཁ", True),
    ],
)
def test_locate_finds_whole_letters_without_spaces(text, translation, is_found):
    assert (locate([text], translation) is not None) == is_found


def test_merge_joins_ranges_that_overlap_and_not_those_that_touch():
    assert merge([(4, 6), (0, 2), (2, 3), (5, 9)]) == [(0, 2), (2, 3), (4, 9)]


HARD = ["{a,b,", "{a,b,{}", "'{", "{", "%(", "`", "/a", "<a ", "1 ", "+1 ", "C:\\a "]
HARD += ["v1.", "%a%", "a.", "1.1.1-", "https://a{"]
HARD += ["a_", "(a", "[a", "((", "))", "'-A", "-A", "--", "f(a", "f((", "|a", "##", "1 000 "]
HARD += ["a--b.", "a/", "a(...)", "a-.com", "*-", "-v"]
HARD += ["`a <", ":a:", "$a", "[[", "[b", "a.b.", "\\", ":a", "f(_", "000 ", "f(a)(", "x:a"]
HARD += ["_a ", "a_a.", "a -a", "a(a)", "-a-", "-A-a", "f(a(", '="', "='a ", "a/*", "a.A ", ".a."]
HARD += [
    "aaaa.",
    "aaaa.Aa ",
    "aa.Aa_",
    "A.a ",
    "_a.A",
    "AAA.",
    "a AAA.",
    "a(A",
    "O(",
    "a/a/a.",
    "-A-1",
]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 50_000,
        "%" + "0" * 50_000,
        "$" + "1" * 50_000 + ".1",
        "a." * 60_000 + ":",
        *(5_000 * hard for hard in HARD),
    ],
)
def test_find_protected_takes_linear_time(text):
    started = time.process_time()
    find_protected(text)
    assert time.process_time() - started < 3  # 15 ms, and 8 s in quadratic time


def test_texts_are_found_once_and_not_within_longer_ones():
    assert find_texts(["a.b", "a.b/c"], "a.b/c a.b") == {"a.b/c": [(0, 5)], "a.b": [(6, 9)]}
    assert find_texts(["1"], "1/2 1") == {"1": [(4, 5)]}


def test_words_are_two_after_a_mark_that_ends_a_sentence():
    assert all(are_two_words(before, "b") for before in ("a", "a…", "a.", "a)"))
    assert not are_two_words("a-", "b")


@pytest.mark.parametrize("text", ["see %nab", "see %1$ now"])
def test_a_letter_or_a_sign_after_a_placeholder_of_qt_makes_it_none(text):
    assert not find_protected(text)
