"""Explanations, saved beside the ledgers for reports of the same spec or the same file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from oomtune.domain import Explanation
from oomtune.storage.ledger import ledger_folder
from oomtune.storage.ledger_format import About, upgrade_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedExplanation:
    explanation: Explanation
    values: dict[str, Any]
    """The explained spec as written, with the entries that flags set."""


@cache
def _adapter() -> TypeAdapter[SavedExplanation]:
    return TypeAdapter(SavedExplanation)


def save_explanation(explanation: Explanation, spec_path: Path, spec_sha256: str, values: dict[str, Any]) -> None:
    """Save an explanation under its spec and under its file; a report does without one that can't be saved."""
    short = dataclasses.replace(explanation.spec.space, batch_sizes=(), length_counts=())
    slim = dataclasses.replace(explanation, spec=dataclasses.replace(explanation.spec, space=short, scan=None))
    document = _adapter().dump_python(SavedExplanation(explanation=slim, values=values), mode="json")
    try:
        for path in _paths(ledger_folder(spec_path), explanation.spec.folder, spec_sha256, str(spec_path.resolve())):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document))
    except OSError:
        return


def load_explanation(folder: Path, about: About) -> SavedExplanation | None:
    """Return the explanation of the probed spec, or the latest one of the same file, or None."""
    for path in explanation_paths(folder, about):
        try:
            document = json.loads(path.read_bytes())
            upgrade_spec(document["explanation"]["spec"])
            saved = _adapter().validate_python(document)
        except (OSError, ValueError, LookupError, TypeError):
            continue
        return dataclasses.replace(saved, explanation=dataclasses.replace(saved.explanation, spec=about.spec))
    return None


def explanation_paths(folder: Path, about: About) -> list[Path]:
    """Return where explanations of a probe may be, best match first; `folder` is the folder of its ledger."""
    return _paths(folder, about.spec.folder, about.spec_sha256, about.spec_path)


def _paths(folder: Path, spec_folder: str, spec_sha256: str, spec_path: str) -> list[Path]:
    keys = [f"{spec_folder}\0{spec_sha256}", *([spec_path] if spec_path else [])]
    return [folder / "explanations" / f"{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}.json" for key in keys]
