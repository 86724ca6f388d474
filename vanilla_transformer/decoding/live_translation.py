"""Translate text that grows or is edited, such as live captions, so that its translation hardly
flickers.
"""

from collections.abc import Sequence
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.pipeline_vanilla_transformer import Segment, split_lines
from vanilla_transformer.text.changes import DRAFT_BIAS

from .segments import split_line
from .sentence_splitter import find_splitter

if TYPE_CHECKING:
    from .translation_pipeline import TranslationPipeline

HIDDEN_TOKENS = 3  # at the end of an unfinished sentence, which the next words often change


class LiveUpdate(NamedTuple):
    """
    The translation of a text that may grow.

    Attributes:
        text: The translation.
        stable: The number of its characters to show. The last tokens of a sentence that may grow
            often change.
    """

    text: str
    stable: int


class LiveTranslation:
    """
    Translate a text again whenever it grows or changes.

        >>> live = LiveTranslation(translate)
        >>> live.update("A man is")
        >>> live.update("A man is sleeping. The")
        >>> live.finish().text

    The translation of the last sentence is the draft of its next one, which prefers these words, as
    in Arivazhagan et al. (2020), https://arxiv.org/abs/1912.03393. A sentence that another one
    follows is finished: it has the translation of greedy search, which does not change anymore
    unless its source does.

    Args:
        pipeline: Decodes sentences by an engine.
        hide: The last tokens of an unfinished sentence that are not stable.
        bias: Preference for the words of the last translation of an unfinished sentence.
        options: Options of calls of the pipeline.
    """

    def __init__(
        self,
        pipeline: "TranslationPipeline",
        hide: int = HIDDEN_TOKENS,
        bias: float = DRAFT_BIAS,
        **options: Any,
    ):
        self._pipeline = pipeline.with_options(num_beams=1, **options)
        self._hide, self._bias = hide, bias
        language = options.get("source_language") or options.get("src_lang")
        self._splitter = find_splitter("abbreviations", language)
        self._finished = dict[str, str]()  # the translations of finished sentences
        self._segments, self._outputs = list[Segment](), list[str]()

    def update(self, text: str) -> LiveUpdate:
        """Return the translation of the text as it is now, which may grow."""
        segments = self._split(text)
        outputs = self._finish(segments[:-1])
        settled = _join(outputs, segments[:-1])
        stable = len(settled)
        if segments:
            draft = self._drafts(segments)[-1]
            (last,) = self._translate([segments[-1].text], [draft], self._bias)
            outputs.append(last)
            stable += self.count_stable(last)
        self._segments, self._outputs = segments, outputs
        return LiveUpdate(settled + "".join(outputs[len(segments) - 1 :]), stable)

    def finish(self, text: str | None = None) -> LiveUpdate:
        """
        Return the translation of the whole text, whose last sentence is finished, too.

        Args:
            text: The text, if it changed since the last update.
        """
        if text is not None:
            self._segments = self._split(text)
        text = _join(self._finish(self._segments), self._segments)
        return LiveUpdate(text, len(text))

    def _split(self, text: str) -> list[Segment]:
        segments = list[Segment]()
        for line in split_lines(text):
            segments += split_line(line, self._splitter)
        return segments

    def _finish(self, segments: Sequence[Segment]) -> list[str]:
        """Return the translations of finished sentences."""
        drafts = dict[str, str]()
        for segment, draft in zip(segments, self._drafts(segments), strict=True):
            if segment.text not in self._finished:
                drafts[segment.text] = draft
        self._finished |= zip(drafts, self._translate([*drafts], [*drafts.values()]), strict=True)
        outputs, finished = list[str](), dict[str, str]()
        for segment in segments:
            outputs.append(self._finished[segment.text])
            finished[segment.text] = outputs[-1]
        self._finished = finished  # the others will not come back
        return outputs

    def _drafts(self, segments: Sequence[Segment]) -> list[str]:
        """Return the last translation of each sentence, or nothing for a new one."""
        further = [""] * (len(segments) - len(self._outputs))
        return [*self._outputs, *further][: len(segments)]

    def _translate(
        self, texts: Sequence[str], drafts: Sequence[str], bias: float = 0.0
    ) -> list[str]:
        if not texts:
            return []
        options = {"draft": [*drafts], "draft_bias": bias}
        answers = self._pipeline([*texts], len(texts), False, **options)
        return [answer["translation_text"] for answer in answers]

    def count_stable(self, text: str) -> int:
        """Return how many characters the translation of an unfinished sentence has before its last
        tokens.
        """
        tokens = self._pipeline.encode_draft(text)
        known = tokens[: max(0, len(tokens) - self._hide)]
        shown = self._pipeline.tokenizer.decode(known, skip_special_tokens=True)
        return len(commonprefix([text, shown]))


def _join(translations: Sequence[str], segments: Sequence[Segment]) -> str:
    """Return translations, each with the white space after its segment."""
    text = ""
    for translation, segment in zip(translations, segments, strict=True):
        text += translation + segment.separator
    return text
