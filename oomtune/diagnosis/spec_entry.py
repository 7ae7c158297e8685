"""A spec entry as text to paste: a line of YAML, or a flag for the command line."""

from __future__ import annotations

import math
import shlex
from typing import Any

import yaml


def spec_line(key: str, value: Any) -> str:
    """Return the entry as one line of YAML for a spec: `search: {remat: [none, full]}`."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return _flow(value)[1:-1]  # without the outer braces


def set_flag(key: str, value: Any) -> str:
    """Return the entry as a flag that changes one key of an existing section: `--set 'search.remat=[none, full]'`."""
    return f"--set {shlex.quote(f'{key}={_flow([value])[1:-1]}')}"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True)
    return str(text).removesuffix("\n")
