"""The vocabularies that layers of a saved model learnt from data: no part of its configuration, but of the file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from oomtune.errors import TrialCrashed
from oomtune.keras.private_keras import saving_lib
from oomtune.spec.saved_config import UNREADABLE

if TYPE_CHECKING:
    import keras

_LOOKUPS = ("TextVectorization", "StringLookup", "IntegerLookup")
_FOLDER, _FILE = "assets/", "/vocabulary.txt"


def learnt(objects: Iterable[dict[str, Any]], path: Path, key: str) -> bool:
    """Has a layer of the file learnt its vocabulary? Raises `TrialCrashed` when the file does not hold it."""
    found = [thing for thing in objects if thing["class_name"] in _LOOKUPS and isinstance(thing.get("config"), dict)]
    waiting = [thing for thing in found if thing["config"].get("vocabulary") is None]
    for thing in waiting:
        by_frequency = thing["config"].get("output_mode") == "tf_idf"
        if by_frequency or not _kept_in(path):
            why = "weighs words by how frequent they were" if by_frequency else "is not in the file"
            raise TrialCrashed(
                f"{key}: {path.name} holds the layer {thing['config'].get('name')!r} ({thing['class_name']}), whose "
                f"vocabulary was learnt from data and {why}",
                hint="use a builder that gives it its vocabulary"
                if by_frequency
                else "save it with model.save('model.keras'), or use a builder that gives the layer its vocabulary",
            )
    return bool(waiting)


def load(model: keras.Model, path: Path, key: str) -> None:
    """Fill the model's tables from the file, as Keras does when it loads one; weights are not read."""
    with TemporaryDirectory() as folder:
        library = saving_lib
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder, _kept_in(path))  # never outside of the folder, whatever they are called
            store = library.DiskIOStore(str(Path(folder, _FOLDER)), mode="r")
            library._load_state(model, None, store, inner_path="", visited_saveables=set())
        except (TypeError, *UNREADABLE) as error:
            raise TrialCrashed(
                f"{key}: {path.name} holds a vocabulary that can't be read: {error}",
                hint="save it again with model.save('model.keras')",
            ) from None


def _kept_in(path: Path) -> list[str]:
    if path.suffix != ".keras":
        return []
    with zipfile.ZipFile(path) as archive:
        return [name for name in archive.namelist() if name.startswith(_FOLDER) and name.endswith(_FILE)]
