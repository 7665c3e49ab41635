"""Run the program as a user would, in this process, through its own error boundary."""

from __future__ import annotations

import pytest

from cli.program import Done, Program
from townlet.cli.app import main


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """`townlet("world", "list")` runs the command and tells its exit code and what it printed."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main(arguments)
        printed = capsys.readouterr()
        code = leaving.value.code
        return Done(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run
