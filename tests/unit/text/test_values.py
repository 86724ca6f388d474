"""Numbers, placeholders and so on, which a text and its translation have."""

from vanilla_transformer.text.values import replace_values


def test_another_number_of_values_leaves_out_the_other_ones():
    pair = "Warte 3 Tage", "Wait 3 days"
    assert replace_values(*pair, "Wait 3 of 4 days") == "Warte 3 Tage"
    assert replace_values(*pair, "Wait days") == "Warte  Tage"
