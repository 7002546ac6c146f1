"""What the documents point at exists: files, lines, tests, keys."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.name)
def test_links_and_tests_exist(path):
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target
    for file, name in re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", text):
        source = (ROOT / "tests" / file).read_text()
        assert not name or f"def {name}(" in source, f"{file}::{name}"
    for module, names in re.findall(r"`(\w+/\w+\.py): ([\w. ]+)`", text):
        source = (ROOT / "src" / "dapo" / module).read_text()
        for name in names.split("."):
            assert re.search(rf"(def|class) {name.strip()}\b", source), f"{module}: {name}"


def test_the_table_of_parts_points_at_the_right_lines():
    rows = re.findall(r"\[`(\w+)`\]\((src/[\w/]+\.py)#L(\d+)\)", (ROOT / "README.md").read_text())
    assert len(rows) >= 6
    for name, file, line in rows:
        found = (ROOT / file).read_text().splitlines()[int(line) - 1]
        assert re.search(rf"(def|class) {name}\b", found), f"{file}:{line} is {found!r}, not {name}"


def test_no_file_is_too_large():
    import subprocess

    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert files
    for file in files:
        assert (ROOT / file).stat().st_size <= 5 * 2**20, file
