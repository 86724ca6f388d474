"""Whatever a model makes of the fields of a text, they come back: whole, as often, in an allowed
order and apart.
"""

from collections import Counter
from random import Random

import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.document_translation import block_translator
from tests.sweeps import examples
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.blocks import Block
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.steps import keep_protected
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.text.protection import KINDS, find_protected

FIELDS = [example for kind in KINDS.values() for example in kind.examples]
FIELDS += ["%s", "%ld", "%.2f", "%d%%", "{}", "{:>5}", "#{name}", "@{name}", "{{count}}"]
FIELDS.append("12\u202f345,60")
WORDS = ["Datei", "files", "um 50 % mehr", "and/or", "e.g.", "(a)", "日本", "다", "x", "…", "Note:"]
MASKS = tuple(f"<ph{number}>" for number in range(8))
NUMBER = regex.compile(r"[\d\s+.,-]+")  # words may become numbers
INVENTED = [field for field in FIELDS if not NUMBER.fullmatch(field)]
GLUED = r"\p{Latin}(?:\{name\}|%ld|\$\{)|(?:\{\{count\}\}|%d%%|\{name\})\p{Latin}"


class Tokenizer:
    all_special_ids = ()

    def __init__(self, masks):
        self._masks = masks

    def get_added_vocab(self):
        return dict(zip(self._masks, range(len(self._masks)), strict=True))

    def __call__(self, text_target, add_special_tokens):
        return {"input_ids": [[len(text)] for text in text_target]}


def fields_of(text):
    return [text[start:end] for start, end in find_protected(text)]


def mangle(text, random):
    """Return a bad translation: fields and masks are dropped, repeated, moved, glued, changed or
    invented.
    """
    shown = fields_of(text) + [mask for mask in MASKS if mask in text]
    shown = [field for field in shown if random.random() < 0.9]
    if random.random() < 0.2:
        shown.append(random.choice([*INVENTED, *MASKS]))
    if random.random() < 0.2 and shown:
        shown.append(random.choice(shown))
    if random.random() < 0.5:
        random.shuffle(shown)
    spaces = ["", " ", " ", " "]
    pieces = [random.choice(WORDS)]
    for field in shown:
        pieces += [random.choice(spaces), field, random.choice(spaces)]
        pieces.append(random.choice(WORDS))
    return "".join(pieces)


def search(text, random, masks):
    def decode(sentences, options, report):
        return [[Translation(mangle(sentence.text, random))] for sentence in sentences]

    search = keep_protected(decode, Tokenizer(masks))
    sentences, options = [Sentence(text, "", [1])], TranslationOptions()
    ((translation,),) = search(sentences, options, lambda done: None)
    return translation.text


def translate_block(text, random, masks):
    def translate(texts, phrases=None):
        return [(mangle(text, random), None) for text in texts]

    translator = block_translator(translate, lambda line: [line], masks, translate)
    (block,) = translator([Block(text)])
    return block.text


parts = st.lists(st.sampled_from(WORDS) | st.sampled_from(FIELDS), max_size=8)


def join(parts_of_text):
    before, field, after = parts_of_text
    return " ".join([*before, field, *after])


sources = st.tuples(parts, st.sampled_from(FIELDS), parts).map(join)
doors = st.sampled_from([search, translate_block])


@examples(300)
@given(sources, st.integers(0, 999), st.sampled_from([(), MASKS]), doors)
def test_fields_come_back_whatever_the_model_says(text, seed, masks, door):
    translation = door(text, Random(seed), masks)
    messages = "{count, plural"
    fields = [field for field in fields_of(text) if messages not in field]
    kept = [field for field in fields_of(translation) if messages not in field]
    known = {*fields, *INVENTED}
    kept = [field for field in kept if field in known or not NUMBER.fullmatch(field)]
    assert Counter(kept) == Counter(fields)
    assert text.count(messages) == translation.count(messages)
    for kind in (r"%[-.\d]*l?[dfs]", r"\{(?::>5)?\}"):
        assert regex.findall(kind, "\n".join(kept)) == regex.findall(kind, "\n".join(fields))
    assert not regex.search(GLUED, translation)
