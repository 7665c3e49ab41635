"""`make check` finds denied words, duplicate class names and import cycles."""

from __future__ import annotations

import pytest

from check_sources import denied_words, duplicate_classes, import_cycle

RULES = {"denied": {"whoever": "the caller", "tells? of": "report"}, "allowed": {"quote.md": ["whoever comes last"]}}


@pytest.mark.parametrize("text", ["Whoever calls", "it tells of x", "# it\n# is for whoever"])
def test_denied_words_are_found_in_any_case(text: str) -> None:
    (line,) = denied_words({"a.py": text}, RULES)
    assert line.startswith(f"a.py:{text.count(chr(10)) + 1}: “")


def test_quotations_and_parts_of_words_are_allowed() -> None:
    assert not list(denied_words({"quote.md": "so whoever comes last", "a.py": "whoevers"}, RULES))
    assert len(list(denied_words({"other.md": "so whoever comes last"}, RULES))) == 1


def test_duplicate_class_names_are_found() -> None:
    one, two = "class Store: ...", "def f():\n    class Store: ..."
    assert list(duplicate_classes({"a.py": one, "b.py": two})) == ["class Store is defined 2 times: a.py:1, b.py:2"]
    assert not list(duplicate_classes({"a.py": "class Store(Protocol): ...", "b.py": two}))


def test_import_cycles_are_found() -> None:
    later = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A\n"
    assert set(import_cycle({"p.a": "import p.b", "p.b": "import p.c", "p.c": later})) == {"p.a", "p.b", "p.c"}
    assert import_cycle({"p.a": "import p.b, p.c", "p.b": "def f():\n    from p import c", "p.c": "import os"}) == []
