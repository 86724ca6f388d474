"""docs/publish.md: its commands run from top to bottom against a local Hub."""

import re
import shlex
from pathlib import Path

from tests.local_hub import use_hub_in_this_process
from vanilla_transformer.cli import main

ROOT = Path(__file__).parents[3]


def test_publish_page_runs_from_top_to_bottom(folder, hub, tmp_path, monkeypatch):
    use_hub_in_this_process(hub, monkeypatch)
    page = (ROOT / "docs" / "publish.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    folder.rename("runs/mine")
    Path("facts.yaml").write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    Path("test.en").write_text("A man is sleeping.\n")
    Path("test.de").write_text("Ein Mann schläft.\n")
    for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            assert main(shlex.split(line)[1:]) == 0
    card = hub.files("user/name")["README.md"].decode()
    assert "| our sentences | cc-by-4.0 |" in card and "our test set" in card
