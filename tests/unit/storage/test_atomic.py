"""Files are written completely or not at all, behind links, and never if they are read-only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from oomtune.errors import OutputNotWritable, UsageProblem
from oomtune.storage.atomic import check_writable, write_whole


def check(path: Path) -> None:
    check_writable(path, flag="-o", force=True, is_ours=lambda _: True)


def write(path: Path) -> None:
    write_whole(path, "new\n", hint="")


def left_behind(folder: Path) -> list[Path]:
    return list(folder.glob(".oomtune-*"))


def test_a_link_stays_a_link_and_the_file_behind_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "tuned.yaml", tmp_path / "tuned.yaml"
    link.symlink_to(target)
    for text in ("the first\n", "the second\n"):  # to where nothing is yet, and over what is there
        check(link)
        write_whole(link, text, hint="")
        assert link.is_symlink()
        assert target.read_text() == text
    assert left_behind(tmp_path) == left_behind(target.parent) == []


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text("old\n")
    path.chmod(0o640)
    write_whole(path, "new\n", hint="")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_read_only_file_is_refused_before_and_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text("mine\n")
    path.chmod(0o444)
    for attempt in (check, write):
        with pytest.raises(OutputNotWritable, match="read-only and was not changed") as raised:
            attempt(path)
        assert "chmod u+w" in raised.value.hint
    assert path.read_text() == "mine\n"
    assert left_behind(tmp_path) == []


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    for attempt in (check, write):
        with pytest.raises((OutputNotWritable, UsageProblem), match="can't be written"):
            attempt(one)
    assert one.is_symlink()


def test_a_failed_write_leaves_the_old_text_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "tuned.yaml"
    path.write_text("old\n")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new\n", hint="")
    monkeypatch.undo()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputNotWritable):
        write_whole(tmp_path / "folder", "new\n", hint="")
    assert path.read_text() == "old\n"
    assert left_behind(tmp_path) == []


def test_file_names_that_are_not_valid_text_are_escaped(tmp_path: Path) -> None:
    write_whole(tmp_path / "page.html", "of caf\udce9", hint="")
    assert (tmp_path / "page.html").read_text() == r"of caf\udce9"
