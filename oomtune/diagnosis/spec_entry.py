"""One entry of a spec as text that can be pasted: a line of YAML, or a flag of the command line."""

from __future__ import annotations

import math
import shlex
from typing import Any

import yaml


def spec_line(key: str, value: Any) -> str:
    """The entry as one line of YAML that a spec takes as it is: `search: {remat: [none, full]}`."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return _flow(value)[1:-1]  # a spec is not in braces


def set_flag(key: str, value: Any) -> str:
    """The same for someone who has a spec with such a section: `--set 'search.remat=[none, full]'`."""
    return f"--set {shlex.quote(f'{key}={_flow([value])[1:-1]}')}"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True)
    return str(text).removesuffix("\n")
