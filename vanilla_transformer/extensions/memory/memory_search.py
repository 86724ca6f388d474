"""
Translate sentences by a memory: a step around all others of a request.

A sentence that is in the memory has its translation without a search; of several translations, it
is the first. The translation of a similar sentence is a draft that greedy search follows. Sentences
with a target prefix or phrases of their own do not use the memory.
"""

from collections.abc import Sequence

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.sentences import Decode, Draft, Report, Sentence
from vanilla_transformer.decoding.token_texts import Token
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.text.changes import DRAFT_BIAS
from vanilla_transformer.text.protection import locate

from .memory import EXACT, Match, TranslationMemory


def use_memory(decode: Decode, memory: TranslationMemory, can_draft: bool) -> Decode:
    """Return a decode that uses a memory.

    Args:
        can_draft: Whether an engine decodes the model, and no other model reranks its translations.
    """

    def decode_by_memory(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        bias = options.draft_bias
        options = options.model_copy(update={"memory": None, "draft_bias": 0.0})
        is_drafted = can_draft and not (options.do_sample or options.mbr or options.count > 1)
        exact, similar = dict[int, Translation](), dict[int, Match]()
        searched = dict[int, Sentence]()
        for number, sentence in enumerate(sentences):
            is_free = not (sentence.prefix or sentence.phrases)
            match = memory.find(sentence.text) if is_free else None
            if match is not None and _is_exact(match, sentence):
                tokens = [Token(len(match.target), 0.0)]
                exact[number] = Translation(match.target, tokens=tokens, similarity=EXACT)
                if options.count == 1:
                    continue
            elif match is not None and is_drafted and sentence.draft is None:
                similar[number] = match
                draft = Draft(match.target, DRAFT_BIAS, match.source).with_values(sentence.text)
                if bias:
                    draft = Draft(draft.text, bias)
                sentence = sentence._replace(draft=draft)
            searched[number] = sentence
        report(len(sentences) - len(searched))
        rows = dict[int, list[Translation]]()
        if searched:
            rows |= zip(searched, decode([*searched.values()], options, report), strict=True)
        for number, match in similar.items():
            for rank, answer in enumerate(rows[number]):
                rows[number][rank] = answer._replace(similarity=match.similarity)
        for number, translation in exact.items():
            others = sorted(rows.get(number, []), key=lambda other: other.text == translation.text)
            rows[number] = [translation, *others][: options.count]
        return [rows[number] for number in range(len(sentences))]

    return decode_by_memory


def _is_exact(match: Match, sentence: Sentence) -> bool:
    """Return whether a sentence has the translation of a match, with all text that must survive."""
    kept = [sentence.text[start:end] for start, end in sentence.kept or ()]
    return match.similarity == EXACT and locate(kept, match.target) is not None
