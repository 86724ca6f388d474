"""The benchmark of warnings counts the references that are warned about."""

from benchmarks.bench_warnings import main


def test_bench_warnings_counts_both_directions(tmp_path, capsys):
    (tmp_path / "val.en").write_text("The dog sleeps.\n" * 3)
    (tmp_path / "val.de").write_text("Der Hund schläft.\n" * 3)
    (tmp_path / "test.en").write_text("The dog sleeps.\nThe dog, 45 years old.\nA A A cat, a.\nThe cat.\n")
    (tmp_path / "test.de").write_text(
        "Der Hund schläft.\nDer Hund, 46 Jahre alt.\nEine Katze, ja.\nDer Hund schläft.\n"
    )
    sides = (("source", "en"), ("target", "de"))
    files = [
        (name, text, side, ending) for name, text in (("validation_", "val"), ("", "test")) for side, ending in sides
    ]
    main([f"--{name}{side}={tmp_path}/{text}.{ending}" for name, text, side, ending in files])
    _, _, forward, backward = capsys.readouterr().out.splitlines()
    assert forward == "| source to target | 4 | 0.00 % | 0.00 % | 25.00 % | 0.00 % | 75.00 % | 75.00 % |"
    assert backward == "| target to source | 4 | 0.00 % | 25.00 % | 25.00 % | 0.00 % | 75.00 % | 75.00 % |"
