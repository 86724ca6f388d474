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
FIELDS += [
    "%s",
    "%ld",
    "%.2f",
    "%d%%",
    "{}",
    "{:>5}",
    "#{name}",
    "@{name}",
    "{{count}}",
    "12\u202f345,60",
]
WORDS = ["Datei", "files", "um 50 % mehr", "and/or", "e.g.", "(a)", "日本", "다", "x", "…", "Note:"]
MASKS = tuple(f"<ph{number}>" for number in range(8))
NUMBER = regex.compile(r"[\d\s+.,-]+")  # words may become numbers
INVENTED = [field for field in FIELDS if not NUMBER.fullmatch(field)]


class Tokenizer:
    all_special_ids = ()

    def __init__(self, masks):
        self._masks = masks

    def get_added_vocab(self):
        return dict(zip(self._masks, range(len(self._masks)), strict=True))

    def __call__(self, text_target, add_special_tokens):
        return {"input_ids": [[len(text)] for text in text_target]}


def mangle(text, random):
    """Return a bad translation: fields and masks are dropped, repeated, moved, glued, changed or
    invented.
    """
    shown = [text[start:end] for start, end in find_protected(text)] + [
        mask for mask in MASKS if mask in text
    ]
    shown = [one for one in shown if random.random() < 0.9]
    for chance, change in [
        (0.2, lambda: shown.append(random.choice([*INVENTED, *MASKS]))),
        (0.2, lambda: shown and shown.append(random.choice(shown))),
        (0.5, lambda: random.shuffle(shown)),
    ]:
        if random.random() < chance:
            change()
    pieces = [random.choice(WORDS)]
    for one in shown:
        pieces += [
            random.choice(["", " ", " ", " "]),
            one,
            random.choice(["", " ", " ", " "]),
            random.choice(WORDS),
        ]
    return "".join(pieces)


def search(text, random, masks):
    def translate(sentences):
        return [[Translation(mangle(each.text, random))] for each in sentences]

    search = keep_protected(lambda some, options, report: translate(some), Tokenizer(masks))
    sentences, options = [Sentence(text, "", [1])], TranslationOptions()
    ((found,),) = search(sentences, options, lambda done: None)
    return found.text


def translate_block(text, random, masks):
    def translate(texts):
        return [(mangle(each, random), None) for each in texts]

    translator = block_translator(
        translate, lambda line: [line], masks, lambda texts, phrases: translate(texts)
    )
    (block,) = translator([Block(text)])
    return block.text


parts = st.lists(st.sampled_from(WORDS) | st.sampled_from(FIELDS), max_size=8)
sources = st.tuples(parts, st.sampled_from(FIELDS), parts).map(
    lambda each: " ".join([*each[0], each[1], *each[2]])
)
doors = st.sampled_from([search, translate_block])


@examples(300)
@given(sources, st.integers(0, 999), st.sampled_from([(), MASKS]), doors)
def test_fields_come_back_whatever_the_model_says(text, seed, masks, door):
    translation = door(text, Random(seed), masks)
    fields, kept = (
        [each[start:end] for start, end in find_protected(each)] for each in (text, translation)
    )
    messages = "{count, plural"
    simple, found = ([each for each in some if messages not in each] for some in (fields, kept))
    found = [
        each for each in found if each in simple or each in INVENTED or not NUMBER.fullmatch(each)
    ]
    assert Counter(found) == Counter(simple)
    assert text.count(messages) == translation.count(messages)
    for kind in (r"%[-.\d]*l?[dfs]", r"\{(?::>5)?\}"):
        ordered = [
            [one for each in some for one in regex.findall(kind, each)] for some in (simple, found)
        ]
        assert ordered[0] == ordered[1]
    assert not regex.search(
        r"\p{Latin}(?:\{name\}|%ld|\$\{)|(?:\{\{count\}\}|%d%%|\{name\})\p{Latin}", translation
    )
