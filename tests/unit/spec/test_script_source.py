"""Options and subcommands, read from the source of a script."""

from __future__ import annotations

import pytest

from oomtune.spec.script_source import Option, options_of, subcommands_of


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("p.add_argument('-b', '--batch', required=True)", Option(names=("-b", "--batch"), required=True)),
        ("p.add_argument('data')", Option(names=("data",), required=True)),
        ("p.add_argument('data', nargs='?')", Option(names=("data",))),
        ("p.add_argument('--fast', action='store_true', required=True)", Option(names=("--fast",))),
        ("p.add_argument('--ids', nargs='+')", Option(names=("--ids",), takes_several=True)),
        ("p.add_argument('--size', choices=['s', 'l'])", Option(names=("--size",), choice="s")),
        ("flags.DEFINE_integer('batch', 32, 'samples')", Option(names=("--batch",))),
        ("@click.option('--out', required=False)\ndef main(): ...", Option(names=("--out",))),
    ],
)
def test_finds_the_options_of_argparse_click_and_absl(line: str, option: Option) -> None:
    assert options_of(line) == [option]


def test_absl_and_exclusive_groups_can_require_an_option_elsewhere() -> None:
    flags = "flags.DEFINE_string('data', None, '')\nflags.mark_flag_as_required('data')"
    group = "g = p.add_mutually_exclusive_group(required=True)\ng.add_argument('--csv')\ng.add_argument('--npz')"
    assert [option.required for option in options_of(flags)] == [True]
    assert [(option.name, option.required) for option in options_of(group)] == [("--csv", True), ("--npz", False)]


def test_finds_the_names_of_subcommands() -> None:
    assert subcommands_of("s.add_parser('train')\ns.add_parser('serve', help='x')") == ["train", "serve"]


def test_refuses_text_that_is_not_python() -> None:
    with pytest.raises(SyntaxError):
        options_of("def def")
