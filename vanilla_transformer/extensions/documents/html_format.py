"""HTML, whole pages and fragments: tags, and the text and the attributes that readers see."""

from collections.abc import Callable, Sequence

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .paragraphs import Context, PageDocument
from .source_text import Place, Token, read_tokens
from .vocabularies import HTML, HTML_PARSER

_VOID = HTML_PARSER["void"].split()
_RAW = dict.fromkeys(HTML_PARSER["raw"].split(), "other") | {"title": "text"}
# What may end without an end tag, and what begins then.
_ENDED_BY = {
    name: value.split()
    for names, value in HTML_PARSER["ended_by"].items()
    for name in names.split()
}
# Words around these elements are one word.
_INVISIBLE = {"noembed", "noframes", "rp", "rt", "rtc", "script", "style", "template", "wbr"}
_DEEPEST = 1000
_BUTTONS = {"button", "reset", "submit"}
_DESCRIPTIONS = {
    "description",
    "og:description",
    "og:title",
    "twitter:description",
    "twitter:title",
}


class HtmlDocument(PageDocument):
    """
    The blocks of an HTML text.

    What readers see or hear is translated, also in attributes. Comments, scripts, styles, `<pre>`,
    `<code>`, what browsers show instead of media, elements with `translate="no"` or the class
    `notranslate`, and elements in another language than the page's are not translated.

    Args:
        direction: The languages, as far as they are known. The language of a page is the source
            language unless that is given, and its attribute `lang` becomes the target language.
        spelling: Returns a [`Place`].
        keeps_space: Whether white space is content, and lines are paragraphs.
    """

    def __init__(
        self,
        text: str,
        direction: Direction = NO_DIRECTION,
        spelling: Callable[..., Place] = Place,
        keeps_space: bool = False,
    ):
        super().__init__(text, read_tokens(text, _RAW))
        self.spelling = spelling
        _pair(self.tokens)
        pages = [token for token in self.tokens if token.name == "html"]
        self.find_languages(pages, ("lang", "xml:lang"), direction)
        self.add_paragraphs(keeps_space)

    def enter(self, index: int, around: Context) -> Context:
        token = self.tokens[index]
        values = {}
        for name, attribute in self.attributes(token).items():
            values[name] = attribute.value.strip().lower()
        verdicts = {"": True, "yes": True, "no": False}
        translate = verdicts.get(values.get("translate", "inherited"))
        if "notranslate" in values.get("class", "").split():
            translate = False
        seen = HTML.attributes_of(token.name)
        if token.name == "input" and values.get("type") in _BUTTONS:
            seen.add("value")
        names = {values.get("name"), values.get("property")}
        if token.name == "meta" and names & _DESCRIPTIONS:
            seen.add("content")
        level = HTML.level(token.name) or "block"
        return self.judge(token, around, HTML, level, translate, seen)

    def role_of(self, token: Token) -> str:
        if token.role == "opaque" and token.name not in _INVISIBLE:
            return "parting"
        return "break" if token.name == "br" else token.role


def _pair(tokens: Sequence[Token]) -> None:
    """Find where elements end, also without an end tag, as browsers do."""
    opened = list[Token]()

    def end(count: int, after: int) -> None:
        while len(opened) > count:
            opened.pop().after = after

    for index, token in enumerate(tokens):
        if token.kind == "open":
            while (outer := _innermost(opened)) >= 0 and token.name in _ENDED_BY.get(
                opened[outer].name, ()
            ):
                end(outer, index)
            token.after = index + 1
            if not (token.is_empty or token.name in _VOID):
                opened.append(token)
            if len(opened) > _DEEPEST:
                raise UserError(f"HTML must be nested at most {_DEEPEST} elements deep, got more.")
        elif token.kind == "close":
            is_inner = HTML.level(token.name) == "inline" and token.name != "ruby"
            least = _innermost(opened) + 1 if is_inner else 0
            for position in reversed(range(least, len(opened))):
                if opened[position].name == token.name:
                    end(position + 1, index)
                    end(position, index + 1)
                    break
            else:
                token.role = HTML.level(token.name) or "block"
    end(0, len(tokens))


def _innermost(opened: Sequence[Token]) -> int:
    """Return the position of the innermost open element that is no markup of a paragraph, or -1."""
    for at in reversed(range(len(opened))):
        if HTML.level(opened[at].name) != "inline":
            return at
    return -1
