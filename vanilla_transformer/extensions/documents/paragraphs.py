"""Paragraphs of HTML and XML: what in a text is translated, and where a paragraph begins and
ends.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple

from vanilla_transformer.text.languages import (
    Direction,
    is_right_to_left,
    is_same_language,
    name_language,
)

from .source_text import Attribute, SourceDocument, Token
from .vocabularies import Vocabulary


class Context(NamedTuple):
    """
    What holds for an element and for the text in it.

    Attributes:
        level: See [`Vocabulary.level`].
        translates, has_attributes: Whether text and attributes are translated.
        is_other: The text is in another language than the source language.
        keeps_space: Whether white space is content.
        has_text: There is text beside the elements in this one.
    """

    level: str = "block"
    translates: bool = True
    has_attributes: bool = True
    is_other: bool = False
    keeps_space: bool = False
    has_text: bool = False

    @property
    def is_translated(self) -> bool:
        return self.translates and not self.is_other


class PageDocument(SourceDocument):
    """A text of paragraphs with markup, in which elements say whether they are translated, and
    their language.
    """

    def add_paragraphs(self, keeps_space: bool = False) -> None:
        """
        Translate attributes, and the text between elements that are blocks, with the inline
        elements in it.

        An element in a paragraph that is not translated with it, as a footnote, has its own
        paragraphs, before it.
        """
        context, first = Context(keeps_space=keeps_space), 0
        # Elements with what holds around them.
        opened = list[tuple[Token, Context, int | None]]()

        def add(last: int) -> None:
            if context.is_translated:
                self.add_run(first, last, context.keeps_space)

        end_of_text = Token("other", len(self.text), len(self.text))
        for index, token in enumerate([*self.tokens, end_of_text]):
            while opened and opened[-1][0].after == index:
                element, around, before = opened.pop()
                if before is not None or context.level == "block":
                    add(self.end(element))
                    first = index if before is None else before
                context = around
            if token.role == "block":  # the end of an element that is not open
                add(index)
                first = index + 1
            if token.kind == "open":
                around, inside = context, self.enter(index, context)
                if inside.level == "block":
                    add(index)
                if inside.level == "nested":
                    token.role = "opaque"
                else:
                    token.role = inside.level if inside.is_translated else "fixed"
                is_fixed = token.role != "inline" or not around.is_translated
                is_apart = inside.level != "block" and is_fixed
                opened.append((token, around, first if is_apart else None))
                first = index + 1 if is_apart or inside.level == "block" else first
                context = inside
        add(len(self.tokens))

    @abstractmethod
    def enter(self, index: int, around: Context) -> Context:
        """Return what holds for an element, given what holds around it, and translate its
        attributes.
        """

    def judge(
        self,
        token: Token,
        around: Context,
        vocabulary: Vocabulary,
        level: str,
        translate: bool | None,
        attributes: Collection[str],
    ) -> Context:
        """Return what holds for an element, given what it says itself of its text, and translate
        some attributes.
        """
        kind = vocabulary.kinds.get(token.local_name)
        languages = self._languages(token)
        is_page = token.start in self._pages
        is_other = around.is_other
        if languages:
            is_other = not is_page and self._is_other(languages[0])
        by_kind = vocabulary.translates(token.local_name)
        marked = translate if translate is not None else by_kind or None
        verdicts = (translate, by_kind, around.translates)
        translates = next(verdict for verdict in verdicts if verdict is not None)
        has_attributes = around.has_attributes if marked is None else marked
        if has_attributes and not is_other:
            for language in languages if self._target else ():
                is_source = is_page or (self._source and not self._is_other(language))
                if language.value.strip() and is_source:
                    self.replaced.append(language.edit(self._target))
            self.write_side(token, "dir", is_page and token.local_name == "html")
            for name, attribute in self.attributes(token).items():
                if name in attributes:
                    self.add_attribute(attribute)
        has_attributes &= translates or kind not in ("hidden", "listing")
        keeps_space = around.keeps_space or kind in ("lines", "listing")
        has_text = level == "inline"
        return Context(level, translates, has_attributes, is_other, keeps_space, has_text)

    def find_languages(
        self, pages: Sequence[Token], names: Sequence[str], direction: Direction
    ) -> None:
        """
        Find the languages of the document, such as that of `<html lang="en">`.

        Args:
            pages: The elements whose language is the one of the document. The first names its
                source language, if no other is given.
            names: The attributes that name a language.
            direction: The source and the target language, as far as they are known.
        """
        self._pages, self._names = {page.start for page in pages}, names
        self._target = name_language(direction.target or "")
        # Where the lines of the translation begin, if that is known
        self.side = find_side(direction.target)
        languages = self._languages(pages[0]) if pages else []
        named = [language.value.strip() for language in languages]
        self._source = direction.source or next(iter(named), None)

    def write_side(
        self, token: Token, name: str, is_root: bool, sides: Sequence[str] = ("ltr", "rtl")
    ) -> None:
        """
        Write where the lines of the translation begin into an attribute of an element: into a root
        without it only the right, and into another element only the left instead of it.

        Args:
            sides: The values for the left and the right.
        """
        new = sides[self.side == "rtl"] if self.side else ""
        side = self.attributes(token).get(name)
        if side is None and is_root and new == sides[1]:
            at = token.start + 1 + len(token.name)
            self.replaced.append((at, at, f' {name}="{new}"'))
        elif side is not None and (is_root or new == sides[0]):
            is_other = {side.value.strip().lower(), new} == {*sides}
            self.replaced += [side.edit(new)] * is_other

    def _languages(self, token: Token) -> list[Attribute]:
        """Return the attributes that name the language of an element."""
        attributes = self.attributes(token)
        return [attributes[name] for name in self._names if name in attributes]

    def _is_other(self, attribute: Attribute) -> bool:
        code = attribute.value.strip()
        has_source = bool(code and self._source)
        return has_source and not is_same_language(code, str(self._source))


def find_side(code: str | None) -> str:
    """Return where the lines of a language begin: `ltr` or `rtl`, or nothing without a language."""
    return ("ltr", "rtl")[is_right_to_left(name_language(code))] if code else ""
