"""Paths and patterns in a spec, and the files they name."""

from __future__ import annotations

from pathlib import Path

from oomtune.spec.files import matching_paths


def test_a_pattern_matches_files_in_order_each_once(tmp_path: Path) -> None:
    for name in ("a.csv", "deep/er/b.csv", "odd[1].csv", "a.txt", "images/cat.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def names(*paths: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in matching_paths(paths, tmp_path)]

    assert names("**/*.csv") == ["a.csv", "deep/er/b.csv", "odd[1].csv"]
    assert names("deep/*/b.csv", "a.csv", "*.csv") == ["deep/er/b.csv", "a.csv", "odd[1].csv"]
    assert names("odd[1].csv") == ["odd[1].csv"]
    assert names(str(tmp_path / "*.txt")) == ["a.txt"]
    assert names("images", "no\0file", "x" * 300) == []
    assert matching_paths(["im*"], tmp_path, folders=True) == [tmp_path / "images"]
