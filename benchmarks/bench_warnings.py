r"""
Count the false alarms of warnings about translations: warnings about the references of a text.

    python -m benchmarks.bench_warnings --validation_source val.en --validation_target val.de \
        --source test.en --target test.de

The limits of length and the scripts come from the validation text, as `vanilla-transformer calibrate` sets them. Both
directions are counted.
"""

import argparse
from collections import Counter
from collections.abc import Sequence

from vanilla_transformer.data.readers import SentencePair, read_text_files
from vanilla_transformer.text.translation_warnings import WARNINGS, find_warnings, measure_limits


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    validation = read_text_files(options.validation_source, options.validation_target)
    pairs = read_text_files(options.source, options.target)
    print(f"| direction | pairs | {' | '.join(WARNINGS)} | any |")
    print("|---|---|" + "---|" * (len(WARNINGS) + 1))
    for name, turn in (("source to target", False), ("target to source", True)):
        rates = false_alarms(*([_reverse(each) if turn else each for each in text] for text in (validation, pairs)))
        cells = [f"{100 * rates[warning]:.2f} %" for warning in (*WARNINGS, "any")]
        print(f"| {name} | {len(pairs):,} | {' | '.join(cells)} |", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_warnings", allow_abbrev=False, description=__doc__.split("\n")[1])
    for name, text in (("validation_", "text that sets the limits"), ("", "text whose warnings are counted")):
        parser.add_argument(f"--{name}source", required=True, help=f"{text}, source side")
        parser.add_argument(f"--{name}target", required=True, help=f"{text}, target side")
    return parser.parse_args(arguments)


def false_alarms(validation: Sequence[SentencePair], pairs: Sequence[SentencePair]) -> dict[str, float]:
    """Return the share of the pairs with each warning, and with any of them."""
    limits = measure_limits(*zip(*validation, strict=True))
    counts = Counter[str]()
    for pair in pairs:
        found = find_warnings(pair.source, pair.target, limits)
        counts.update([*found, *(["any"] if found else [])])
    return {name: counts[name] / len(pairs) for name in (*WARNINGS, "any")}


def _reverse(pair: SentencePair) -> SentencePair:
    return SentencePair(pair.target, pair.source)


if __name__ == "__main__":
    main()
