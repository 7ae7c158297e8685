"""Print the lowest version of each direct dependency that pyproject.toml allows, as pip constraints."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib  # type: ignore[import-not-found]  # Python 3.11 and later

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
_FLOOR = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def lowest_versions() -> list[str]:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return [f"{match[1]}=={match[2]}" for line in requirements if (match := _FLOOR.match(line))]


if __name__ == "__main__":
    print("\n".join(lowest_versions()))
