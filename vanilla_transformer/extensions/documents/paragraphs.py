"""Paragraphs of HTML and XML: what in a text is translated, and where a paragraph begins and
ends.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple

from vanilla_transformer.text.languages import Direction, is_same_language, name_language

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
        opened = list[tuple[Token, Context, int | None]]()  # with what holds around them

        def add(last: int) -> None:
            if context.is_translated:
                self.add_run(first, last, context.keeps_space)

        for index, token in enumerate(
            [*self.tokens, Token("other", len(self.text), len(self.text))]
        ):
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
                token.role = (
                    "opaque"
                    if inside.level == "nested"
                    else inside.level
                    if inside.is_translated
                    else "fixed"
                )
                is_apart = inside.level != "block" and (
                    token.role != "inline" or not around.is_translated
                )
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
        kind, languages, is_page = (
            vocabulary.kinds.get(token.local_name),
            self._languages(token),
            token.start in self._pages,
        )
        is_other = not is_page and self._is_other(languages[0]) if languages else around.is_other
        by_kind = vocabulary.translates(token.local_name)
        marked = translate if translate is not None else by_kind or None
        translates = next(
            value for value in (translate, by_kind, around.translates) if value is not None
        )
        has_attributes = around.has_attributes if marked is None else marked
        if has_attributes and not is_other:
            for language in languages if self._target else ():
                if language.value.strip() and (
                    is_page or (self._source and not self._is_other(language))
                ):
                    self.replaced.append(language.edit(self._target))
            for name, attribute in self.attributes(token).items():
                if name in attributes:
                    self.add_attribute(attribute)
        has_attributes &= translates or kind not in ("hidden", "listing")
        keeps_space = around.keeps_space or kind in ("lines", "listing")
        return Context(level, translates, has_attributes, is_other, keeps_space, level == "inline")

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
        named = (
            [attribute.value.strip() for attribute in self._languages(pages[0])] if pages else []
        )
        self._source = direction.source or next(iter(named), None)

    def _languages(self, token: Token) -> list[Attribute]:
        """Return the attributes that name the language of an element."""
        attributes = self.attributes(token)
        return [attributes[name] for name in self._names if name in attributes]

    def _is_other(self, attribute: Attribute) -> bool:
        code = attribute.value.strip()
        return bool(code and self._source) and not is_same_language(code, str(self._source))
