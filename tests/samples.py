"""Writes SAMPLES.tsv, a line for each sample, and names samples in the format's rules.

``python tests/samples.py`` does both, from the manifests of ``valid`` and ``invalid``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
DOCS = FOLDER.parent / "docs"
PAGES = DOCS / "format.rst", DOCS / "format-appendix.rst"
TABLE = FOLDER / "SAMPLES.tsv"
COLUMNS = "path", "rules", "category", "outcome", "sha256"
# A rule, its duty, and its sample.
RULE = re.compile(
    r"^(?:\*|#\.) \*\*([A-Z]\d+)\*\* \(([RUAWCN])(?::([\w-]+))?\)", re.MULTILINE
)


class Sample(NamedTuple):
    """A line of the table; ``rules`` are separated by commas."""

    path: str
    rules: str
    category: str
    outcome: str
    sha256: str

    @property
    def name(self) -> str:
        return re.sub(r"\.\w+$", "", self.path.split("/datasets/")[-1].split("/")[-1])


def text() -> str:
    """Return the text of the pages with rules."""
    return "".join(page.read_text("utf-8") for page in PAGES)


def rules(text: str) -> dict[str, tuple[str, str]]:
    """Return duty and sample of each rule."""
    return {rule: (duty, name) for rule, duty, name in RULE.findall(text)}


def samples() -> list[Sample]:
    """Return all samples, in the order of the manifests."""
    duties = {rule: duty for rule, (duty, _) in rules(text()).items()}
    found = []
    for folder in "valid", "valid/datasets", "invalid", "invalid/datasets":
        manifest = (FOLDER / folder / "MANIFEST.json").read_text("ascii")
        for name, entry in json.loads(manifest).items():
            path = "%s/%s" % (folder, entry.get("path", name + ".blp"))
            outcome, content = outcome_of(entry, [duties[r] for r in entry["rules"]])
            category = "archive" if path.endswith(".zip") else "dataset"
            if path.endswith(".blp"):
                category = "file"
            stated = ",".join(entry["rules"])
            found.append(Sample(path, stated, category, outcome, content))
    return found


def outcome_of(entry: dict, duties: list[str]) -> tuple[str, str]:
    """Return the outcome of a sample, and the SHA-256 of its bytes or items, or '-'.

    Notes that no rule demands are those of this implementation.
    """
    refusal = "unsupported" if duties[0] == "U" else "damage"
    if "verdict" in entry:
        return entry["verdict"], "-"
    if "accepted by" in entry:
        accepted = {*entry["accepted by"]}
        if "bytes" not in accepted:
            return refusal, "-"
        if "array" not in accepted:
            return "array " + refusal, "-"
        return "checker" if duties[0] == "C" else "append", "-"
    tree = entry.get("content", {})
    content = entry.get("plain", {}).get("sha256") or tree.get("bytes")
    content = content or tree.get("items", "-")
    if entry.get("errors"):
        return "checker", content
    return "note" if entry["notes"] and "N" in duties else "read", content


def table(found: list[Sample]) -> str:
    return "".join("\t".join(line) + "\n" for line in (COLUMNS, *found))


def named(text: str, found: list[Sample]) -> str:
    """Return a text, in which each rule names the first sample that is about it."""

    def head(match: re.Match[str]) -> str:
        rule, duty, _ = match.groups()
        about = [each for each in found if rule in each.rules.split(",")]
        first = [each for each in about if each.rules.split(",")[0] == rule] or about
        kind = "valid" if duty in "AN" else "invalid"
        first = [each for each in first if each.path.startswith(kind)] or first
        start = match[0].partition("(")[0] + "(" + duty
        return start + (":%s)" % first[0].name if first else ")")

    return RULE.sub(head, text)


def main() -> None:
    """Write the table, and the names in the rules."""
    found = samples()
    TABLE.write_text(table(found), "ascii")
    for page in PAGES:
        page.write_text(named(page.read_text("utf-8"), found), "utf-8")


if __name__ == "__main__":
    main()
