"""The reference page of the Python package, in Markdown, from signatures and docstrings."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import baton

_INTRODUCTION = """# Python

`import baton` gives a notebook or a script what the commands do. [How to](../how-to/python.md) has examples. Everything
that is wrong with the input is raised as a `BatonError` with one sentence.
"""


def python_page() -> str:
    """Every public name of the package: what it takes and what it means."""
    return "\n".join((_INTRODUCTION, *(_section(name, getattr(baton, name)) for name in baton.__all__)))


def _section(name: str, what: Any) -> str:
    heading = f"## {name}\n"
    if not inspect.isclass(what):
        return f"{heading}\n```text\nbaton.{name}{_signature(what)}\n```\n\n{_paragraphs(what)}\n"
    return f"{heading}\n{_paragraphs(what)}\n{''.join(_members(what))}"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])|'", "", str(signature))


def _paragraphs(what: Any) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(what.__doc__ or ""))


def _members(kind: type) -> Iterator[str]:
    if kind is not baton.Run:
        return
    tree = inspect.getsource(kind)
    yield "\n| attribute | meaning |\n| --- | --- |\n"
    for name, text in re.findall(r'^    (\w+): [^\n]+\n    """(.*?)"""$', tree, re.MULTILINE | re.DOTALL):
        yield f"| `{name}` | {' '.join(text.split())} |\n"
    for name, member in inspect.getmembers(kind, lambda one: isinstance(one, property)):
        yield f"| `{name}` | {_paragraphs(member)} |\n"
