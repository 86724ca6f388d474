"""Check pages in a browser for violations of accessibility, by axe-core of npm."""

import shutil
import subprocess

import pytest

_RUN = """
const done = arguments[0];
axe.run().then(result => done(result.violations.map(each => each.id + ": " + each.nodes[0].html.slice(0, 200))));
"""


def install_axe(folder):
    """Return the script of axe-core, or skip the test if it cannot be installed."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    installed = subprocess.run(
        ["npm", "install", "--silent", "axe-core@4"], cwd=folder, capture_output=True, check=False
    )
    if installed.returncode:
        pytest.skip("npm cannot install axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def find_problems(browser, axe, width):
    """Return violations on the page that the browser shows, and whether it is wider than its
    window.
    """
    browser.execute_script(axe)
    problems = browser.execute_async_script(_RUN)
    if browser.execute_script("return document.documentElement.scrollWidth") > width:
        problems.append("wider than the window")
    return problems
