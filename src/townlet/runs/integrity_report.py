"""The result of an integrity check: what is whole, what is damaged, and what can still be used.

`townlet runs verify` and `townlet decide verify` both return one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

WHOLE, DAMAGED, MISSING = "whole", "damaged", "missing"
UNPROTECTED: Final = "unprotected"  # without a checksum
NOTED: Final = "noted"  # worth knowing, and harmless


@dataclass(frozen=True)
class CheckedItem:
    """One thing that was checked, usually a file."""

    name: str
    state: str  # one of the constants above
    text: str = ""


@dataclass
class IntegrityReport:
    """Everything that was checked in one folder."""

    subject: str  # name of the run, or folder of the service
    items: list[CheckedItem] = field(default_factory=list)
    usable: list[str] = field(default_factory=list)  # sentences

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged or missing."""
        return all(item.state not in (DAMAGED, MISSING) for item in self.items)

    def add(self, name: str, problem: str = "", text: str = "") -> bool:
        """Add the result of a check: damaged where there is a problem. Returns whether it is whole."""
        self.items.append(CheckedItem(name, DAMAGED if problem else WHOLE, problem or text))
        return not problem

    def note(self, name: str, text: str, state: str = NOTED) -> None:
        """Add an item in another state."""
        self.items.append(CheckedItem(name, state, text))

    def as_json(self) -> dict[str, Any]:
        """The whole report for programs."""
        items = [vars(item) for item in self.items]
        return {"subject": self.subject, "whole": self.whole, "items": items, "usable": self.usable}
