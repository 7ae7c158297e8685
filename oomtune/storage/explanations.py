"""What explanations found, kept beside the ledgers: for reports of the same spec, or of its file with other flags."""

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
class KeptExplanation:
    explanation: Explanation
    values: dict[str, Any]
    """The spec that was explained, as it was written and with what flags had set."""


@cache
def _adapter() -> TypeAdapter[KeptExplanation]:
    return TypeAdapter(KeptExplanation)


def keep_explanation(explanation: Explanation, spec_path: Path, spec_sha256: str, values: dict[str, Any]) -> None:
    """Keep it under the spec itself and under the file that holds it; what can't be kept is not shown."""
    short = dataclasses.replace(explanation.spec.space, batch_sizes=(), length_counts=())
    slim = dataclasses.replace(explanation, spec=dataclasses.replace(explanation.spec, space=short, scan=None))
    kept = _adapter().dump_python(KeptExplanation(explanation=slim, values=values), mode="json")
    try:
        for path in _paths(ledger_folder(spec_path), explanation.spec.folder, spec_sha256, str(spec_path.resolve())):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kept))
    except OSError:
        return


def kept_explanation(folder: Path, about: About) -> KeptExplanation | None:
    """The explanation of what was probed; where there is none, the latest of the same file."""
    for path in explanation_paths(folder, about):
        try:
            document = json.loads(path.read_bytes())
            upgrade_spec(document["explanation"]["spec"])
            kept = _adapter().validate_python(document)
        except (OSError, ValueError, LookupError, TypeError):
            continue
        return dataclasses.replace(kept, explanation=dataclasses.replace(kept.explanation, spec=about.spec))
    return None


def explanation_paths(folder: Path, about: About) -> list[Path]:
    """Where explanations of a probe may lie, the nearest to it first; `folder` is that of its ledger."""
    return _paths(folder, about.spec.folder, about.spec_sha256, about.spec_path)


def _paths(folder: Path, spec_folder: str, spec_sha256: str, spec_path: str) -> list[Path]:
    keys = [f"{spec_folder}\0{spec_sha256}", *([spec_path] if spec_path else [])]
    return [folder / "explanations" / f"{hashlib.sha256(os.fsencode(key)).hexdigest()[:16]}.json" for key in keys]
