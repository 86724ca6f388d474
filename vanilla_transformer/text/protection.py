"""Text that must survive a translation: URLs, placeholders, emoji, long numbers and so on, each
kind with a name.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import regex

from .units import UNSPACED_SCRIPTS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Range = tuple[int, int]


class Kind(NamedTuple):
    """
    A kind of text to keep.

    Attributes:
        examples: Examples of such text.
        expressions: Regular expressions that find it.
        beginnings: The characters with which it can begin, see `_BEGINNINGS`.
    """

    examples: Sequence[str]
    expressions: Sequence[str]
    beginnings: str = "."


# A character that continues a word, in scripts that separate words.
WORD_CHARACTER = rf"[\w--{UNSPACED_SCRIPTS}]"
_BEGINS_WORD = regex.compile(WORD_CHARACTER, regex.V1)
_BEFORE_WORD = regex.compile(rf"(?:{WORD_CHARACTER}|[.,:;!?…\p{{Pe}}\p{{Pf}}])\Z", regex.V1)
# Korean attaches particles and units to the word before.
_LETTER = rf"[{WORD_CHARACTER}--\p{{Hangul}}]"
_NAME = r"[A-Za-z_][A-Za-z_0-9]*+"
_BRACES = r"\{[^{}\s]*\}"
_DOUBLE_BRACES = r"\{{2,3}[^{}\n]*+\}{2,3}"
WIDTH = r"(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh?|ll?|[jztLq])?"
# A conversion may touch letters, as in %dMB, and one of a date is a letter. A percentage such as 50
# %ige is none, and %1timed is a word after a placeholder of Qt.
_CONVERSION = (
    rf"(?<!\d\s?)%(?!\d+[jtLq][a-z]{{2}})(?:(?:\d+\$)?[0#]*+{WIDTH}[diouxXeEfgGcs@]|-?[A-Za-z](?!{_LETTER}))"
    rf"|%(?:\d+\$)?[-+0#]*+{WIDTH}[diouxXeEfFgGcCaAps@](?!{_LETTER})"
)
# Units that programs write at a placeholder. An s after the field of a name is an ending.
UNIT = rf"(?:[dhkmwxBKM]|(?<=[df\d])y|(?<=d|[Ss](?:ecs?|econds?)\}})s|px|ms)(?!{_LETTER})"
# The end of a placeholder that may be a number
_ENDS_IN_NUMBER = r"(?<=[^%\s]\}|%(?:\d{1,2}\$)?(?:\.\d)?l{0,2}[dfs@]|%L?\d)"
PERCENT_NAME = rf"(?<![{_LETTER}%])%[A-Za-z_][A-Za-z_0-9]++%(?![{_LETTER}%])"
# A pair of quotation marks of ICU hides braces.
_TEXT_IN_BRACES = r"(?:[^{}']++|'[{}][^']*+'?|')*+"
for _ in range(12):
    _TEXT_IN_BRACES = rf"(?:[^{{}}']++|'[{{}}][^']*+'?|'|\{{{_TEXT_IN_BRACES}\}})*+"
_PATH = rf"[{_LETTER}.@+%\-]"
_PATH_END = rf"[{_LETTER}@+%\-]"
_NO_SPACES = rf"{UNSPACED_SCRIPTS}\p{{Hangul}}"
_MYRIADS = "十百千万萬億亿兆만억조천"  # after a number, they are part of it
_END_MARKS = r".,;:!?'”’»)\]…"
_URL = (
    rf"(?:[{_END_MARKS}]*+(?:\{{++[^{{}}\s]*+\}}++"
    rf"|[^\s<>\"{{}}{_END_MARKS}、。「」{_NO_SPACES}]))++"
)
# Signs between which a program puts a name or a number, and no writing a word
_MARKERS = r"[#@^|¦¤¬‖⟦-⟯⦃-⦘⌈-⌋]"
CODE_ELEMENT = r"<(?:code|kbd|samp|var)(?:\s[^<>]*+)?>[^<>]*+</(?:code|kbd|samp|var)>"
# The first kind that fits at a place is taken, and of a kind the first expression.
KINDS = {
    "url": Kind(
        ["https://a.example/x?y=1", "www.a.example", "example.com"],
        [
            rf"(?:https?|ftp|(?<![{_LETTER}.+\-])[A-Za-z][A-Za-z0-9+.\-]*+)://{_URL}",
            rf"(?<!{_LETTER}\.?)www\.{_URL}",
            # Domains
            rf"(?<![{_LETTER}.+\-/@])(?:[A-Za-z0-9-]++\.){{1,126}}(?:com|edu|gov|net|org)(?![.\-@]?{_LETTER})"
            rf"(?:/(?:{_URL})?+)?+",
        ],
        "a0",
    ),
    "email": Kind(
        ["me@mail.example"],
        [rf"(?<![{_LETTER}.+\-])[{_LETTER}.+\-]++@[{_LETTER}\-]+(?:\.[{_LETTER}\-]+)+"],
        "a0.",
    ),
    "code": Kind(
        ["`a + b`", "<code>a + b</code>"],
        [
            # A role of Sphinx or a link, up to its text, and its target
            r"(?::[A-Za-z][\w+.-]*+(?::[\w+.-]++){0,3}+:)?+`(?=[^\s`<][^`<\n]*+(?<=\s)<[^<>`\n]++>`)",
            r"(?<=\s)<[^<>`\n]++>`_{0,2}+",
            rf"(?<![{_LETTER}`])`++(?!\s)[^`\n]++(?<!\s)`++(?:__?(?!\w))?",
            CODE_ELEMENT,
        ],
    ),
    "path": Kind(
        [r"C:\Users\me", "/usr/bin/env", "~/x"],
        [
            rf"(?<!{_LETTER})(?:[A-Za-z]:/(?:{_PATH}++/)*+|(?:[A-Za-z]:|\\\\[\w.-]++|%[A-Z_]++%)\\"
            rf"(?:{_PATH}++(?: {_PATH}++)*+\\)*+)(?:{_PATH}*{_PATH_END})?",
            rf"(?<![{_LETTER}\p{{Hangul}}/.~:<*\-])(?:(?:~|\.\.?|\${_NAME})/|/{_PATH}++/)"
            rf"(?:{_PATH}++/)*+(?:{_PATH}*{_PATH_END}|\.\.)?",
            # Folders
            rf"(?<![{_LETTER}/.~:<*\-])(?:[A-Za-z][A-Za-z0-9_.-]*+/){{2,}}+(?!{_LETTER})",
            rf"(?<![{_LETTER}/.~:<*\-])[a-z][a-z_-]{{3,}}+/(?=[\s.,;:)]|\Z)",
        ],
        "a.",
    ),
    "placeholder": Kind(
        [
            *(
                "{count, plural, one {# file} other {# files}}",
                "$t(key)",
                "{{ name|upper }}",
                "{ $name }",
                "%{count}",
            ),
            *(
                "%name%",
                "{name:>5}",
                "%(name)s",
                "%1$s",
                "%d",
                "%1",
                "${name}",
                "__COUNT__",
                ":name",
            ),
            *("$NAME$", "[X5X]", "[[1]]", "⟦1⟧", "|version|", "##NAME##"),
        ],
        [
            rf"\{{\s*[\w.-]+\s*,\s*[A-Za-z]+\s*(?:,{_TEXT_IN_BRACES})?\}}|\{{[\w.-]+\}}",  # ICU
            rf"{_DOUBLE_BRACES}|\$t\([^()\n]*+\)",  # i18next
            r"\{%[^{}\n]*\}",  # Jinja
            r"%(?:\d+\$)?#@[^@\n]++@",  # variables of Apple
            r"\{\s*+[$-]\w[^{}\n]*+\}",  # Fluent
            rf"[%#]{_BRACES}|%[-+0#]*+\d*+<\w++>[-+0#]*+{WIDTH}[A-Za-z]",  # Ruby
            PERCENT_NAME,
            # Python
            rf"{_BRACES}|\{{\d+(?:,-?\d+)?:[^{{}}\n]*+\}}|%\([^()\s]++\)[-+0# ]*+{WIDTH}[A-Za-z]",
            rf"{_CONVERSION}|%%",  # printf
            rf"(?<!\d\s?|%)%L?(?:[1-9]\d?(?![\d_])|n(?!{_LETTER}))(?![$%]|[.,]\d)",  # Qt
            rf"\${_NAME}\$(?!\w)",  # Chrome
            rf"[$@]{_BRACES}|\$1(?![\d.,]*\d| \d{{3}}(?!\d))|\${_NAME}",  # shells
            # Weblate and tools of translators
            rf"\[[A-Za-z]++\d++[A-Za-z]++\]|\[\[[\w.-]++\]\]"
            rf"|(?<![\w#@^|]){_MARKERS}{{1,3}}+[\w.-]++{_MARKERS}{{1,3}}+(?!\w)",
            rf"(?<![{_LETTER}.])__[A-Za-z0-9]++(?:_[A-Za-z0-9]++)*+__(?!{_LETTER})",
            r"@:[A-Za-z_]\w*+(?:\.\w++)*+",  # Vue
            r"(?<![\w:.)\]}]|\w[\"'”’»+])@?:[A-Za-z_](?:[A-Za-z_0-9-]++:(?!//)|[A-Za-z_0-9]++(?!://))",
        ],
    ),
    "tag": Kind(
        ["<name>", "&nbsp;", "[b]", "[/url]"],
        [
            r"</?[A-Za-z][\w:.-]*+(?:\s+[\w:.-]++=(?:\"[^\"]*+\"|'[^']*+'))*+\s*/?>",
            r"&(?:[A-Za-z]{2,}\d*|#\d+|#x[0-9A-Fa-f]+);",
            # BBCode, and references of Godot
            r"\[/?(?:[bisu]|br|center|code|codeblocks?|color|font|img|kbd|left|lb|list|ol|quote|rb"
            r"|right|size|ul|url)(?:=[^\[\]\s]*+)?\]",
            r"\[(?:annotation|constant|constructor|enum|member|method|operator|param|signal"
            r"|theme_item) [^\[\]\s]++\]",
        ],
    ),
    "handle": Kind(
        ["#tag", "@name"],
        [
            rf"(?<![{_LETTER}&#/])#[\p{{L}}_]\w*+",
            rf"(?<![{_LETTER}@])@{_NAME}(?:[.\-/][A-Za-z_0-9]++)*+",
        ],
    ),
    "emoji": Kind(
        ["🙂"],
        [
            r"\p{Regional_Indicator}{2}|[0-9#*]\uFE0F?\u20E3",
            r"\p{Extended_Pictographic}[\uFE0F\p{Emoji_Modifier}]*"
            r"(?:\u200D\p{Extended_Pictographic}[\uFE0F\p{Emoji_Modifier}]*)*",
        ],
        "a0.",  # ℹ is a letter, too
    ),
    # Models copy short numbers or write them as words, as they should. They break long ones, dates
    # and times.
    "number": Kind(
        [
            "v1.2.3",
            "ISBN 978-3-16-148410-0",
            "DE89 3704 0044 0532 0130 00",
            "+49 30 901820",
            "12,345.60",
            "US$30",
        ],
        [
            # Versions
            rf"(?<![{_LETTER}.,]|(?<!\S)-)"
            rf"(?:(?:v\d++(?:\.\d++)*+|\d++(?:\.\d++){{2,}}+)(?:[-+][A-Za-z0-9]++(?:\.[A-Za-z0-9]++)*+)*+"
            rf"|v?\d++(?:\.\d++)++\.?(?:(?i:a|b|c|rc|alpha|beta|post)\d++|dev\d*+)|(?:\d++\.)++[Xx]"
            rf"|[Xx]\.(?:[Yy]|\d++)(?:\.(?:[Zz]|\d++))?+)(?!{_LETTER}|[.,:/]\d)",
            rf"(?<!{_LETTER})ISBN(?:-1[03])?:?\s?(?:\d[ -]?){{9}}(?:(?:\d[ -]?){{3}})?"
            rf"[\dX](?!{_LETTER})",
            # IBAN
            rf"(?<!{_LETTER})[A-Z]{{2}}\d{{2}}(?: ?[A-Z0-9]{{4}}){{2,7}}"
            rf"(?: ?[A-Z0-9]{{1,3}})?(?!{_LETTER})",
            # Numbers of telephones
            rf"(?<![{_LETTER}+])(?=(?:[^\w\n]{{0,3}}+\d){{7}})"
            r"(?:\+\d{1,3}[ ./-]?(?:\(\d++\)[ ./-]?)?|\(0?\d{2,5}\)[ ./-]?|0\d{2,4}[ /-](?=\d{3}))"
            rf"\d++(?:[ ./-]\d++)*+(?!{_LETTER})",
            # Amounts with the letters of a dollar
            rf"(?<!{_LETTER})[A-Z]{{1,3}}\$\d++(?:[.,'’\u00A0\u202F-]\d++)*+(?![{_MYRIADS}])",
            # With spaces between groups of digits
            rf"(?<![{_LETTER}.,\d])\p{{Sc}}?\d{{1,3}}(?: \d{{3}}){{1,5}}+(?:[.,]\d++)?+"
            rf"(?![{_LETTER}\d{_MYRIADS}])",
            rf"(?<![{_LETTER}.,])(?:\d{{4}}-\d\d-\d\dT\d\d[\d:.]*+(?:Z|[+-]\d\d:?\d\d)?"
            rf"|[+-]?\d+(?:[.,:/\u00A0\u202F'’-]\d+)+)(?![{_LETTER}{_MYRIADS}])",
            rf"(?<!{_LETTER})[+-]?\d{{3,}}(?![{_LETTER}{_MYRIADS}])|\$\d++(?![\d.,]*\d)",
        ],
        "a0.",
    ),
    # Runs between spaces that are no language, see `_OTHER`
    "other": Kind(
        ["--verbose", "-v", "index.html", "foo()", "Ctrl+C", "First_Name", "PATH=", "C++", r"\p"],
        [],
    ),
}
_BEGINNINGS = {"a": r"\p{L}", "0": r"\d", ".": r"[^\p{L}\d\s]"}
# A run between spaces is language if it has letters and numbers with the signs that writing uses
# within words and around them. Scripts without spaces, their marks and particles of Korean end one.
_RUN = rf"[[^\s\u3000-\u303F\uFF00-\uFF65]--{UNSPACED_SCRIPTS}--\p{{Hangul}}]"
_OPENING = r"(?:[(\[{<'\"‘’“”„‚«»‹›`¡¿…–—]|\*(?![.\-_]\w|\ufffc))"
_CLOSING = r"[)\]}>'\"‘’“”«»‹›`*.,:;!?…–—]"
_FIELD = "\ufffc"  # stands for text of another kind
_NAMED = f"[A-Za-z0-9_{_FIELD}]"
# The signs of what is no language, of which each expression below begins with one
_SIGNS = r"[_=\\|+#:\-(.*\^~<{@}$]"
# Words after which half of a compound begins with a hyphen, as in Fußballspieler und -trainer; in
# Finnish it does so after a name.
_CONJUNCTIONS = "und|oder|bzw|sowie|noch|en|of|och|eller|og|ja|tai|sekä|või|és|vagy"
# Words after the name of a class, as in: a logging.Filter object
_NOUNS_OF_PROGRAMS = (
    "(?:argument|constructor|instance|method|parameter)s?|(?:sub)?class(?:es)?|attribute|construct"
    "|datatype|decorator|exception|field|function|model|module|object|property|type"
)
# Words before a noun that ends a sentence, before the verb in: the park.Tom objects
_ARTICLES = "an?|the|this|that|my|your|his|her|its|our|their"
# Words that begin a sentence, before which a space may be missing
_DETERMINERS = (
    "The|This|That|These|Those|Each|Every|Any|Some|No|All|My|Your|His|Her|Its|Our|Their|What|Which"
    "|First|Second|Third|Ce|Cet|Cette|Une?|Les?|Des|Chaque|Het|Een|Dit|Dat|Elk|Deze"
)
_FIRST_WORDS = (
    f"{_DETERMINERS}|I|You|He|She|It|We|They|There|Then|Now|Also|However|And|But|So|If|When|As|In"
    "|On|At|For|To|Please|Note"
)
# Before the first part of a name such as queue.Queue
_BEGINS_NAME = r"(?<![\w.@/'’-])"
# At the beginning of a run: options, endings of names of files, and names such as _orm.Session
_BEGINS_NO_WORD = (
    rf"(?<=(?<![\p{{L}}-])\p{{Ll}}{{1,30}}\s)(?<!\b(?:{_CONJUNCTIONS})\s)-[A-Za-z]{{2,}}+(?![\w'’-])|"
    r"--[a-z]|-(?:v++|[a-z]\d?+)(?![\w'’])|-[BCDFGHJLMNPQRTX](?![\w'’.])"
    r"|(?<!\A|[.!?…\-]\s)-(?:(?:[A-Z]\d*+|[A-Z]{2,}+)(?![\w'’])|[A-Za-z]++-[a-z\d])"
    r"|-[A-Z][a-z]++(?=\s(?:flag|option|switch)\b)"
    r"|\.[a-z]{2,}+(?!\w|\.(?!\Z))|\.[a-z]\.[a-z]{2}|_[A-Za-z][A-Za-z\d]*+(?![^_]*+_)"
    r"|[_.]{1,2}+[A-Za-z_][A-Za-z\d_]++\.[A-Z]\w"
)
# The name of a class after the name of its module, as in queue.Queue, models.Model, pathlib.Path
_SAME_NAME = rf"(?<={_BEGINS_NAME}(?P<part>[a-z]{{4,30}})(?:s|lib)?)\.(?=(?i:(?P=part)))"
_IN_NO_WORD = "|".join(
    (
        rf"(?<=[\p{{Latin}}\d{_FIELD}])_++(?=[\p{{Latin}}\d{_FIELD}])|__(?=[A-Za-z])",
        r"(?<=\w-)_(?=[a-z])",
        rf"(?<=[A-Za-z\]])=|=(?=[A-Za-z\"'${_FIELD}])",
        r"\\(?=\w)|(?<=[A-Za-z\])])\|(?=[A-Za-z\[\-])",
        # Keys, and languages of programs
        r"(?<=[A-Za-z])\+(?=[A-Za-z])|(?<=Ctrl|Alt|Shift|Cmd|Meta)\+|(?<=\b[A-Za-z])\+\+",
        r"(?<=[A-Za-z0-9)])#",
        rf"(?<=[{_NAMED}>])::|::(?={_NAMED})|(?<=[\w)])[-=]>(?=\w)",
        # Calls, and pages of manuals
        rf"(?<=[\w\]{_FIELD}])\(\)|(?<=[a-z])\([1-9][a-z]?\)",
        rf"(?<={_NAMED})\((?:\(\)|\.\.\.|-?[a-z]*+\d++|[A-Z][a-z]++[A-Z]\w*+)\)",
        rf"(?<={_NAMED})\((?=[^()\s]*+\))(?:\*|[^()\"'=_\s]*+[\"'=_])",
        rf"(?<=\b[a-z]{{3,20}})\((?=[A-Z]\))|(?<=[A-Z]{{4}})\({_FIELD}++\)|(?<=\bO)\((?=[^()\s]++\))",
        # Not the endings of file(s), Datei(en), bijou(x), and Hungarian a(z)
        rf"(?<={_NAMED})\((?:[a-z]{{3,}}+\)(?!\w)|(?:[b-df-hj-lpqtvwy]|(?<!u\()x)\)(?!\w)|\w++\()",
        # Names of files, and names of several parts
        rf"(?<={_NAMED}{{2}}|[{_FIELD}\])])\.(?=[a-z_][A-Za-z0-9_]++(?!{_LETTER}))",
        rf"(?<=[A-Za-z]{{2}}[-_]\d)\.(?=[a-z]{{2,4}}(?!{_LETTER}))",
        rf"(?<={_NAMED}{{3}})\.(?=[a-z](?!\w))|(?<={_NAMED}{{2}})\.(?=[A-Z][a-z]++[A-Z])",
        r"(?<=\w/\w{1,2})\.(?=[a-z](?!\w))|(?<=\w/\w{1,20}/\w{1,2})\.(?=[a-z]{2,4}(?!\w))",
        _SAME_NAME,
        # Names of variables, and names in capitals beside other words
        rf"(?<={_BEGINS_NAME}[A-Z])\.(?=[a-z]{{4,}}+(?![\w'’]|\.\w))",
        rf"(?<={_BEGINS_NAME}[a-z])\.(?=[a-z]{{2,}}+[A-Z])",
        r"(?<=[a-z]\s[A-Z]{3,20})\.(?=[A-Z]{3,}+(?!\w))",
        rf"(?<={_BEGINS_NAME}[A-Z]{{3,20}})\.(?=[A-Z]{{3,}}+\s[a-z])",
        r"(?<=[a-z]{2})\.(?=[A-Z](?:[A-Z\d]|(?![\w'’])))",
        # Names of classes at an edge of a sentence, within which a space may be missing after a
        # period; and after an article that begins one
        r"(?<=(?:\A\s{0,9}(?:[-*]\s{1,3})?|[.!?:]\s)(?:(?:An?|The)\s)?[a-z_]\w{1,30})"
        r"\.(?=[A-Z][a-z]++(?![\w'’]))",
        r"(?<=[(\[][a-z_]\w{1,30})\.(?=[A-Z][a-z]++(?![\w'’]))",
        r"(?<=(?<![\w.@/-])[a-z_]\w{1,30})\.(?=[A-Z][a-z]++(?:[;:)\]]|[.!?]?+\s*+\Z))",
        # The same before a noun of programs
        rf"(?<=(?<![\w.@/-])[A-Za-z_]\w{{1,30}})"
        rf"\.(?!(?:{_DETERMINERS})\b)(?=[A-Z][a-z]++\s(?:{_NOUNS_OF_PROGRAMS})\b)",
        rf"(?<=(?<![\w.@/-]|\b(?:{_ARTICLES})\s)[A-Za-z_]\w{{1,30}})"
        rf"\.(?!(?:{_DETERMINERS})\b)(?=[A-Z][a-z]++\sobjects\b)",
        rf"(?<=(?<![\w.'’-])[a-z])\.(?=[a-z]{{4,}}+(?!{_LETTER}))",
        r"(?<=[*/])\.(?=[A-Za-z])|(?<=\w/)\*",
        r"(?<=[A-Za-z0-9)}])\^(?=\w)|(?<=[A-Za-z])~(?=\d)|(?<=[A-Za-z])[<{@](?=[A-Za-z])",
        r"\}(?=\w)|\$\(",
    )
)
_NO_LANGUAGE = regex.compile(
    rf"(?={_SIGNS})(?:(?<!{_LETTER})(?:{_BEGINS_NO_WORD})|{_IN_NO_WORD})", regex.V1
)
_PLAIN = f"[{_RUN}--{_SIGNS}]"
# What ends a run, but is a word of language beside what is kept, as in foo()'s
_SUFFIX = (
    rf"(?:(?:['’]|(?<=[)#+]|\.[a-z]{{1,4}}):)\p{{Ll}}{{1,4}}|(?<=\S)-\p{{Lu}}\p{{Ll}}++)"
    rf"{_CLOSING}*+(?!{_RUN})"
)
_IN_PARENTHESES = (
    r"\((?:[^()\s]|\([^()\s]*+\))*+\)|\[[^\[\]\s]*+\]|(?<==)(?:\"[^\"\s]*+\"|'[^'\s]*+')|(?<=\w/)\*"
)


def _compile_runs(in_no_word: str) -> regex.Pattern[str]:
    """Return the expression of runs that have one of some signs."""
    sign = rf"(?={_SIGNS})(?:{in_no_word})"
    has_sign = rf"{_PLAIN}*+(?:(?!{sign}){_SIGNS}{_PLAIN}*+)*+{sign}"
    start = rf"(?<!{_RUN}){_OPENING}*+(?={_BEGINS_NO_WORD}|{has_sign})"
    inner = f"[{_RUN}--{_CLOSING}]"
    part = rf"(?!{_SUFFIX})(?:{_IN_PARENTHESES}|{inner}|{_CLOSING}++(?={inner}))"
    return regex.compile(rf"{start}(?<core>(?:{part})++)", regex.V1)


# Names that look like a missing space after a period, as in: from kombu.Queue to A.id
_LIKE_WORDS = (
    rf"(?<={_BEGINS_NAME}(?<module>[A-Za-z_]\w{{1,30}}))\.(?!(?:{_FIRST_WORDS})\b)(?=[A-Z]++[a-z])"
    rf"|(?<={_BEGINS_NAME}(?<module>[A-Z]))\.(?=[a-z]{{1,3}}+(?![\w'’]|\.\w))"
)
_NAMES_LIKE_WORDS = regex.compile(rf"(?=\.)(?:{_LIKE_WORDS})")
_OTHER = _compile_runs(_IN_NO_WORD)
_OTHER_BESIDE_CODE = _compile_runs(f"{_IN_NO_WORD}|{_LIKE_WORDS}")
# Signs of programs, beside which such names are kept. A lone period is none.
_CODE = regex.compile(rf"[_()=\\|:<>{{}}/#*~-]|[a-z][A-Z]|{_SAME_NAME}")
# What all text to keep has, whatever its kind. Most sentences have none of it.
_NEEDED = regex.compile(
    r"[^\p{L}\p{M}\s,;'\"!?).\-(]|ℹ|[.\-(](?=\S)(?:(?<=www\.)|(?<=\.)[a-zA-Z]|(?<=-)-[a-z]"
    rf"|(?<=\w\()(?:[()\w]|\.\.\.|[^()\s\"']*+[\"'])|(?<=(?<!{_RUN}){_OPENING}{{0,2}}-)[A-Za-z])",
    regex.V1,
)
# Tokens of placeholders that models of this package learn. They are not special, so they appear in
# the text of a translation.
MASKS = tuple(f"<ph{number}>" for number in range(8))
MASK = regex.compile(r"[<｟\[]ph_?\d+[>｠\]]")
SIGN = regex.compile(r"[%{}<>$&]|\s{2,}+")  # of placeholders and tags; and a run of white space
# %88 is a percentage in Turkish, unless there is a first field of Qt.
_PERCENTAGE, _FIRST_FIELD = regex.compile(r"%\d\d"), regex.compile(r"%L?1(?!\d)")
_ENDS_IN_CONVERSION = regex.compile(r"%[^%\s]*[A-Za-z]$")
_SPACE, _WORD, _IN_WORD = (
    regex.compile(r"\s"),
    regex.compile(r"\w"),
    regex.compile(_LETTER, regex.V1),
)
_CONTINUES_WORD = regex.compile(rf"\p{{M}}|{_LETTER}|(?<=\d)[.,:/]\d", regex.V1)


def find_protected(text: str, protect: bool = True) -> list[Range]:
    """Return where text begins and ends that must appear in the translation as it is; nowhere
    unless `protect`.
    """
    if not protect or not _NEEDED.search(text):
        return []
    ranges, pieces, end = list[Range](), list[str](), 0
    has_first = _FIRST_FIELD.search(text)
    for match in _protected().finditer(text):
        if has_first or not _PERCENTAGE.fullmatch(match[0]):
            ranges.append(match.span())
            pieces += [text[end : match.start()], _FIELD * len(match[0])]
            end = match.end()
    shown = "".join([*pieces, text[end:]])
    others = list[Range]()
    if _NO_LANGUAGE.search(shown):
        others = [match.span("core") for match in _OTHER.finditer(shown)]
    if _is_about_programs(shown, others):
        others = [match.span("core") for match in _OTHER_BESIDE_CODE.finditer(shown)]
    return merge([*ranges, *others]) if others else ranges


def _is_about_programs(text: str, others: Sequence[Range]) -> bool:
    """Return whether names in a text that look like words are kept.

    They are beside runs that are no language, or two have the same first part.
    """
    modules = [match["module"] for match in _NAMES_LIKE_WORDS.finditer(text)]
    if not modules:
        return False
    return len({*modules}) < len(modules) or any(_CODE.search(text, *span) for span in others)


def adds_signs(source: str, translation: str, sign: regex.Pattern[str] = SIGN) -> bool:
    """Return whether a translation has one of some signs more often than its source."""
    return not Counter(sign.findall(translation)) <= Counter(sign.findall(source))


def remove_protected(text: str) -> str:
    """Return the words around text to keep, such as URLs and placeholders."""
    pieces, end = list[str](), 0
    for start, stop in find_protected(text):
        pieces.append(text[end:start])
        end = stop
    return " ".join([*pieces, text[end:]])


@cache
def _protected() -> regex.Pattern[str]:
    """Return the expression of runs of text to keep, with the unit of a placeholder.

    The first character tells which kinds it tries.
    """
    groups = []
    for beginning, characters in _BEGINNINGS.items():
        kinds = [kind for kind in KINDS.values() if beginning in kind.beginnings]
        tried = "|".join(f"(?:{expression})" for kind in kinds for expression in kind.expressions)
        groups.append(f"(?={characters})(?:{tried})")
    return regex.compile(f"(?:{'|'.join(groups)})++(?:{_ENDS_IN_NUMBER}{UNIT})?+", regex.V1)


def are_two_words(before: str, after: str) -> bool:
    """Return whether two texts that touch need a space between them, because their words are
    separate.
    """
    return bool(_BEFORE_WORD.search(before) and _BEGINS_WORD.match(after))


def find_masks(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Return the placeholder tokens of a vocabulary, such as `<ph0>`, which its model has learned
    to copy.

    A special token is none of them: it would not appear in the text of a translation.
    """
    special = set(getattr(tokenizer, "all_special_tokens", ()))
    added = sorted(getattr(tokenizer, "get_added_vocab", dict)().items(), key=lambda item: item[1])
    return [token for token, _ in added if token not in special and MASK.fullmatch(token)]


def mask(text: str, ranges: Sequence[Range], masks: Sequence[str]) -> tuple[str, list[Range]]:
    """Replace each range of a text by a mask. Return the text and where the masks are."""
    pieces, places, end, length = list[str](), list[Range](), 0, 0
    for (start, stop), token in zip(ranges, masks, strict=True):
        pieces += [text[end:start], token]
        length += start - end + len(token)
        places.append((length - len(token), length))
        end = stop
    return "".join([*pieces, text[end:]]), places


def locate(texts: Sequence[str], translation: str) -> list[Range] | None:
    """Return where each of the texts is in a translation, equal ones in order, or None if the
    number differs.
    """
    ranges = find_texts(texts, translation)
    if any(len(ranges[text]) != count for text, count in Counter(texts).items()):
        return None
    return [ranges[text].pop(0) for text in texts]


def find_texts(texts: Iterable[str], translation: str) -> dict[str, list[Range]]:
    """Return where each of the texts is in a translation, in order.

    A text is not found within a longer one, word or number, nor without the marks of its last
    character.
    """
    shown = _SPACE.sub(" ", translation)  # tokenizers normalize white space
    ranges, taken = dict[str, list[Range]](), bytearray(len(shown))
    for text in sorted({*texts}, key=len, reverse=True):
        plain, ranges[text] = _SPACE.sub(" ", text), []
        begins_word = bool(_WORD.match(text))
        ends_word = _WORD.match(text[-1]) and not _ENDS_IN_CONVERSION.search(text)
        end, start = 0, shown.find(plain)
        while start >= 0:
            end = start + len(plain)
            is_part = begins_word and _IN_WORD.match(shown[start - 1 : start])
            if (
                is_part
                or any(taken[start:end])
                or (ends_word and _CONTINUES_WORD.match(shown, end))
            ):
                end = start + 1
            else:
                ranges[text].append((start, end))
                taken[start:end] = bytes([1]) * len(plain)
            start = shown.find(plain, end)
    return ranges


def overlapping(place: Sequence[int], others: Sequence[Range]) -> Sequence[Range]:
    """Return which of some ranges, in order and apart, share characters with one."""
    first = bisect_right(others, place[0], key=itemgetter(1))
    return others[first : bisect_left(others, place[1], first, key=itemgetter(0))]


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, with those that overlap as one."""
    merged = list[Range]()
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def find_kept(source: str) -> list[str]:
    """Return the protected texts that a translation must have as they are: all but numbers, of
    which other languages write the separators otherwise.
    """
    kept = list[str]()
    for start, end in find_protected(source):
        text = source[start:end]
        if kind_of(text) != "number":
            kept.append(text)
    return kept


def kind_of(text: str) -> str:
    """Return the kind of a piece of text to keep, see `KINDS`."""
    for name, kind in KINDS.items():
        if any(regex.match(expression, text, regex.V1) for expression in kind.expressions):
            return name
    return "other"
