"""Several processes divide the lines of a file among them."""

import subprocess
import sys
from pathlib import Path

from tests.launchers import torchrun
from vanilla_transformer.cli import main

LINES = [f"a {'dog ' * (index % 5)}{index}." for index in range(400)]
SCRIPT = Path(__file__).parents[3] / "scripts" / "translate.py"


def flags(folder, text, output):
    files = [str(folder), "--input", str(text), "--output", str(output)]
    return [*files, "--max_new_tokens", "8", "--batch_size", "1", "--quiet"]


def test_translate_divides_a_file_among_processes(folder, tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert main(["translate", *flags(folder, text, tmp_path / "alone")]) == 0
    command = [sys.executable, "-m", *torchrun(2), str(SCRIPT), *flags(folder, text, tmp_path / "both")]
    subprocess.run(command, check=True, timeout=300)
    assert (tmp_path / "both").read_bytes() == (tmp_path / "alone").read_bytes()
    assert not (tmp_path / "both.partial").exists()


def test_translate_of_several_processes_needs_files(folder):
    result = subprocess.run(
        [sys.executable, "-m", *torchrun(2), str(SCRIPT), str(folder), "A man."], capture_output=True, timeout=300
    )
    assert result.returncode and b"Several processes divide the lines of an --input" in result.stderr
