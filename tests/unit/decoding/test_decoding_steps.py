"""A search under constraints gives up sentence by sentence."""

from vanilla_transformer.decoding.answers import Translation
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.segments import Sentence
from vanilla_transformer.decoding.steps import decode_constrained


def test_constrained_sentences_that_fail_do_not_cost_others_their_translations():
    calls = []

    def decode(sentences, options, report):
        calls.append((len(sentences), options.num_beams, options.count))
        if any(each.text == "bad" for each in sentences):
            raise ValueError("It has too many phrases.")
        return [[Translation(each.text.upper())] for each in sentences]

    sentences = [Sentence(text, "", [1]) for text in ("good", "bad", "fine")]
    rows = decode_constrained(decode, sentences, TranslationOptions(num_beams=2, num_return_sequences=5))
    assert rows == [[Translation("GOOD")], None, [Translation("FINE")]]
    assert calls == [(3, 5, 5), (1, 5, 5), (1, 5, 5), (1, 5, 5)]
    assert (
        TranslationOptions().with_beams().num_beams == 4
        and TranslationOptions(num_beams=8).with_beams().num_beams == 8
    )
