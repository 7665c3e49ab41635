"""Supply chain of the dependencies: recorded hashes, their check, the SBOM and known advisories. Used by the Makefile.

`tools/hashes.txt` records the sha256 of every published archive of every pinned version, for all platforms; it is
written by `lock` from the package index. `tools/audit.txt` does the same for the tools that this program starts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
HASHES, AUDIT, CONSTRAINTS = ROOT / "tools/hashes.txt", ROOT / "tools/audit.txt", ROOT / "constraints.txt"
INDEX: Final = "https://pypi.org/simple"
TOOLS: Final = ("cyclonedx-bom", "pip-audit", "uv")
SEPARATE: Final = ("bench",)  # contradicts the other pins, see pyproject.toml
# Builds for certain GPUs or for CPUs only (+cpu, +rocm) come from other indexes, and no list has all of them.
OWN_BUILDS: Final = ("torch",)
EDITABLE: Final = "editables"  # needed by hatchling for editable installs, but not declared in its requirements
ENTRY: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")

Hashes = dict[tuple[str, str], frozenset[str]]  # sha256 of all archives, by name and version


class Archive(NamedTuple):
    """The archive that pip chooses for a requirement on this machine."""

    name: str
    version: str  # with the local part of an own build
    sha256: str


def normalized(name: str) -> str:
    """A project's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def recorded(path: Path = HASHES) -> Hashes:
    """The hashes of a lock file."""
    found = ENTRY.findall(path.read_text(encoding="utf-8"))
    return {(normalized(n), v): frozenset(re.findall(r"sha256:([0-9a-f]{64})", rest)) for n, v, rest in found}


def requirements(extras: list[str]) -> list[str]:
    """Requirements of the default install, the build backend and some extras."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, needed = file["project"], [*file["build-system"]["requires"], EDITABLE, *file["project"]["dependencies"]]
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            inner = re.match(rf"{project['name']}\[(.+?)\]", line)
            needed += requirements([part.strip() for part in inner[1].split(",")]) if inner else [line]
    return list(dict.fromkeys(needed))


def chosen(extras: list[str]) -> list[Archive]:
    """The archives that pip would install here, without installing them."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report), "-c", str(CONSTRAINTS)]
        _run(*PIP, "install", *options, *requirements(extras))
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [_archive(item) for item in found]


def _archive(item: dict[str, Any]) -> Archive:
    hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
    return Archive(normalized(item["metadata"]["name"]), item["metadata"]["version"], hashes.get("sha256", ""))


def sort_out(archives: list[Archive], known: Hashes) -> tuple[list[Archive], list[Archive], list[Archive]]:
    """Archives with a recorded hash, own builds, which cannot have one, and all others."""
    good = [a for a in archives if a.sha256 in known.get((a.name, a.version), ())]
    own = [a for a in archives if a not in good and a.name in OWN_BUILDS and "+" in a.version]
    return good, own, [a for a in archives if a not in good and a not in own]


def check_archives(archives: list[Archive]) -> tuple[list[Archive], list[Archive]]:
    """Archives with a recorded hash, and own builds; exits with a message where one is neither."""
    good, own, wrong = sort_out(archives, recorded())
    print(f"{len(good)} archives have their recorded hash")
    for a in own:
        print(f"{a.name} {a.version} is not the published build: its hash is not recorded and not checked")
    for a in wrong:
        print(f"{a.name} {a.version}: sha256 {a.sha256 or 'unknown'} is not recorded in {HASHES.relative_to(ROOT)}")
    if wrong:
        sys.exit("do not install these: find out where they come from (`pip config list`), or record them: make lock")
    return good, own


def altered_files(distribution: Distribution) -> Iterator[str]:
    """Installed files that differ from the wheel's list of hashes (RECORD)."""
    for file in distribution.files or ():
        if file.hash is None:
            continue
        path = Path(str(file.locate()))
        digest = hashlib.new(file.hash.mode, path.read_bytes() if path.is_file() else b"").digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            yield f"{distribution.metadata['Name']}: {file} was changed or removed after it was installed"


def verify(extras: list[str]) -> None:
    """Check installed files against their wheels' lists, and pip's choice against the recorded hashes."""
    installed = list(distributions())
    wrong = [line for one in installed for line in altered_files(one)]
    print(*wrong, f"{len(installed)} installed packages, {len(wrong)} altered files", sep="\n")
    check_archives(chosen(extras))
    if wrong:
        sys.exit("remove .venv and install again")


def install(extras: list[str]) -> None:
    """Install the dependencies and Townlet itself; pip refuses every archive without its recorded hash."""
    good, own = check_archives(chosen(extras))
    with TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(f"{a.name}=={a.version} --hash=sha256:{a.sha256}\n" for a in good), encoding="utf-8")
        hashed = ["--require-hashes", "--no-deps", "--quiet", "-r", str(listed)]
        _run(*PIP, "install", *hashed)
    for a in own:
        _run(*PIP, "install", "--no-deps", "--quiet", f"{a.name}=={a.version}")
    _run(*PIP, "install", "--no-deps", "--no-build-isolation", "--quiet", "--editable", str(ROOT))
    _run(*PIP, "check")


def _run(*command: str, given: str | None = None) -> None:
    """Run a command, which prints its own error messages."""
    if code := subprocess.run(command, input=given, text=True, cwd=ROOT, check=False).returncode:
        sys.exit(code)


def lock(_: list[str]) -> None:
    """Record the hashes of all pinned versions again, and those of the newest audit tools."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [f"--extra={name}" for name in file["optional-dependencies"] if name not in SEPARATE]
    _compile(HASHES, "-c", str(CONSTRAINTS), *extras, "pyproject.toml", "-", given=EDITABLE)
    _compile(AUDIT, "-", given="\n".join(TOOLS))


def _compile(path: Path, *arguments: str, given: str = "") -> None:
    options = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *options, f"--default-index={INDEX}"]
    _run(*uv, *arguments, "-o", str(path), given=given)
    body = path.read_text(encoding="utf-8")
    path.write_text(f"# sha256 of every published archive of these versions. Written by `make lock`.\n{body}", "utf-8")


def audit(_: list[str]) -> None:
    """Query the advisory service for known vulnerabilities of all recorded versions; no answer is an error."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--format=json", "--desc=off"]
    given = ["--require-hashes", "--disable-pip", "-r", str(HASHES)]
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    answers = json.loads(done.stdout)["dependencies"] if done.stdout.startswith("{") else []
    # A mirror without advisories has no entry for any package, which pip-audit reports as no vulnerabilities.
    if not any("vulns" in one for one in answers):
        sys.exit("the advisory service gives no answer here: nothing was audited. Try again with access to pypi.org")
    for one in answers:
        if "skip_reason" in one:
            print(f"{one['name']}: not audited: {one['skip_reason']}")
        for found in one.get("vulns", ()):
            fixed = ", ".join(found["fix_versions"]) or "none yet"
            print(f"{one['name']} {one['version']}: {found['id']}, fixed in {fixed}")
    wrong = sum(bool(one.get("vulns")) for one in answers)
    print(f"{len(answers)} packages, {wrong} with known vulnerabilities")
    sys.exit(wrong > 0)


COMMANDS: Final = {"verify": verify, "install": install, "lock": lock, "audit": audit}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](sys.argv[2:])
