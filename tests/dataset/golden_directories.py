"""The directories that bcolz and BLZ wrote, with their values and attributes."""

from __future__ import annotations

import functools
import io
import json
import zipfile

import numpy
from support import GOLDEN

FOLDER = GOLDEN / "directories"


@functools.cache
def entries() -> dict[str, dict]:
    """Return the entries of the manifest by name."""
    text = (FOLDER / "MANIFEST.json").read_text("ascii")
    return {entry["id"]: entry for entry in json.loads(text)["datasets"]}


def extract(name: str, target) -> None:
    """Write the dataset of an entry to the folder `target`."""
    start = entries()[name]["path"] + "/"
    with zipfile.ZipFile(FOLDER / (name.partition("/")[0] + ".zip")) as archive:
        for member in archive.namelist():
            if member.startswith(start):
                path = target / member[len(start) :]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(member))


def content(name: str, place: str) -> bytes:
    """Return the content of a file that belongs to an entry."""
    with zipfile.ZipFile(FOLDER / (name.partition("/")[0] + ".zip")) as archive:
        return archive.read(place)


def values(name: str):
    """Return the values: an array, a list of objects, or a dictionary of columns."""
    place = entries()[name]["expected"]["values"]
    data = content(name, place)
    if place.endswith(".json"):
        return json.loads(data)
    found = numpy.load(io.BytesIO(data))
    if isinstance(found, numpy.ndarray):
        return found
    columns = {key: found[key] for key in found.files}
    return columns["values"] if list(columns) == ["values"] else columns


def attributes(name: str):
    """Return the attributes."""
    return json.loads(content(name, entries()[name]["expected"]["attrs"]))
