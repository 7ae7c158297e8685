"""The JSON Schema for editors agrees with the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from oomtune.spec import json_schema, load_spec
from tests.support.cli import ROOT
from tests.support.specs import small_spec, spec_problems

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_example_config_loads_and_validates_against_the_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())
    load_spec(path)


@pytest.mark.parametrize(
    "overrides", [{"search__batch_size": "many"}, {"device__kind": "tpu"}, {"model__layers": [{"A": {}, "B": {}}]}]
)
def test_the_schema_refuses_what_the_loader_refuses(overrides: dict[str, Any]) -> None:
    values = json.loads(json.dumps(small_spec(**overrides)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, json_schema())
    assert spec_problems(values)
