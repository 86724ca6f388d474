"""HTML, whole pages and fragments: tags, and the text and the attributes that readers see."""

from collections.abc import Collection, Sequence

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .blocks import SpanBuilder
from .source_text import PageLanguages, Place, SourceDocument, Token, read_tokens


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names(
    "a abbr acronym b bdi bdo big button cite data del dfn em font i ins label mark nobr q rb rp rt rtc ruby s small "
    "span strike strong sub sup time tt u"
)
_FIXED = _names("code kbd samp var")
_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_RAW = dict.fromkeys(_names("iframe noembed noframes plaintext script style textarea xmp"), "other")
_RAW["title"] = "text"
_UNTOUCHED = _names("iframe math noembed noframes plaintext pre script style svg template xmp")
_OPAQUE = _UNTOUCHED - {"pre"} | _names(
    "area audio canvas embed img input map meter object output picture progress textarea track video wbr"
)
_IN_PARAGRAPHS = _INLINE | _OPAQUE | _FIXED | {"br"}
_INVISIBLE = _names("noembed noframes script style template wbr")  # words around them are one word
_SIDE_BY_SIDE = _names("a button label")  # words in two of them are two words
_DEEPEST = 1000
# What may end without an end tag, and what begins then.
_ROWS = _names("tbody tfoot thead")
_ENDED_BY = {
    "dd": _names("dd dt"),
    "dt": _names("dd dt"),
    "head": _names("body"),
    "li": _names("li"),
    "optgroup": _names("optgroup"),
    "option": _names("optgroup option"),
    "p": _names(
        "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer "
        "form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav ol p pre search section table ul"
    ),
    "tr": _ROWS | {"tr"},
    **dict.fromkeys(("td", "th"), _ROWS | _names("td th tr")),
    **dict.fromkeys(_ROWS, _ROWS),
}
# Attributes that readers see or hear, of all elements and of some.
_ATTRIBUTES = _names("aria-description aria-label aria-placeholder aria-roledescription aria-valuetext title")
_OWN_ATTRIBUTES = {
    "area": _names("alt"),
    "img": _names("alt"),
    "input": _names("alt placeholder"),
    "optgroup": _names("label"),
    "option": _names("label"),
    "textarea": _names("placeholder"),
    "th": _names("abbr"),
    "track": _names("label"),
}
_BUTTONS = _names("button reset submit")
_DESCRIPTIONS = _names("description og:description og:title twitter:description twitter:title")


class HtmlDocument(SourceDocument):
    """
    The blocks of an HTML text.

    What readers see or hear is translated, also in attributes. Comments, scripts, styles, `<pre>`, `<code>`, what
    browsers show instead of media, elements with `translate="no"` or the class `notranslate`, and elements in another
    language than the page's are not translated.

    Args:
        direction: The languages, as far as they are known. The language of a page is the source language unless that
            is given, and its attribute `lang` becomes the target language.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text, read_tokens(text, _RAW))
        _pair(self.tokens)
        pages = [token for token in self.tokens if token.name == "html"]
        self._languages = PageLanguages(self, pages, ("lang", "xml:lang"), direction)
        first = index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            following = self._read_tag(index)
            if token.kind == "open" and token.name in _OPAQUE | _FIXED:  # its text is kept
                while following < token.after:
                    following = self._read_tag(following)
            if token.name and token.name not in _IN_PARAGRAPHS:
                self.add_run(first, index)
                first = following
            index = following
        self.add_run(first, index)

    def _read_tag(self, index: int) -> int:
        """Translate the attributes of a tag. Return the number of the next token whose attributes are translated."""
        token = self.tokens[index]
        if token.kind != "open":
            return index + 1
        if self._is_kept(token):
            return token.after
        self._languages.name_target(token)
        attributes = self.attributes(token)
        seen = set(_ATTRIBUTES | _OWN_ATTRIBUTES.get(token.name, frozenset()))
        values = {name: attribute.value.strip().lower() for name, attribute in attributes.items()}
        if token.name == "input" and values.get("type") in _BUTTONS:
            seen.add("value")
        if token.name == "meta" and {values.get("name"), values.get("property")} & _DESCRIPTIONS:
            seen.add("content")
        for name, attribute in attributes.items():
            if name in seen:
                self.add_attribute(attribute)
        return token.after if token.name in _UNTOUCHED else index + 1

    def _is_kept(self, token: Token) -> bool:
        values = {name: attribute.value for name, attribute in self.attributes(token).items()}
        is_marked = (
            values.get("translate", "").strip().lower() == "no" or "notranslate" in values.get("class", "").split()
        )
        return is_marked or self._languages.is_other(token)

    def add_token(self, builder: SpanBuilder, index: int, place: Place) -> int:
        token = self.tokens[index]
        if token.kind == "text":
            self.add_text(builder, token, place)
            return index + 1
        if token.kind != "open":
            span = builder.close(token.name) if token.kind == "close" else None
            if span is None:
                builder.add_mark(self.span_of(index, index + 1))
            else:
                span.payload[1] = (token.start, token.end)
            return index + 1
        mark, text = self.span_of(index, token.after), self.text_of(index, token.after)
        if token.name == "br":
            builder.add_mark(mark, breaks=True)
        elif token.name in _OPAQUE or (token.name in ("sub", "sup") and builder.is_note(text)):
            builder.add_mark(mark)
            if token.name not in _INVISIBLE:
                builder.part()
        elif token.name in _FIXED or self._is_kept(token):
            builder.add_mark(mark, text)
        else:
            before = self.tokens[index - 1] if index else token
            if before.kind == "close" and before.name == token.name and token.name in _SIDE_BY_SIDE:
                builder.part()
            builder.open(token.name, [(token.start, token.end), None])
            return index + 1
        return token.after


def _pair(tokens: Sequence[Token]) -> None:
    """Find where elements end, also without an end tag, as browsers do."""
    opened = list[Token]()

    def end(count: int, after: int) -> None:
        while len(opened) > count:
            opened.pop().after = after

    for index, token in enumerate(tokens):
        if token.kind == "open":
            while (outer := _innermost(opened)) >= 0 and token.name in _ENDED_BY.get(opened[outer].name, ()):
                end(outer, index)
            token.after = index + 1
            if not (token.is_empty or token.name in _VOID):
                opened.append(token)
            if len(opened) > _DEEPEST:
                raise UserError(f"HTML must be nested at most {_DEEPEST} elements deep, got more.")
        elif token.kind == "close":
            least = _innermost(opened) + 1 if token.name in _INLINE | _FIXED else 0
            for position in reversed(range(least, len(opened))):
                if opened[position].name == token.name:
                    end(position + 1, index)
                    end(position, index + 1)
                    break
    end(0, len(tokens))


def _innermost(opened: Sequence[Token], names: Collection[str] = _INLINE | _FIXED) -> int:
    """Return the position of the innermost open element that is no markup of a paragraph, or -1."""
    return next((at for at in reversed(range(len(opened))) if opened[at].name not in names), -1)
