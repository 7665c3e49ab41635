"""Supply chain of the dependencies: record and check hashes, look up known vulnerabilities. Used by the Makefile.

`tools/hashes.txt` records the sha256 of every published archive of every pinned version, for all platforms; it is
written by `lock` from the package index. `tools/audit.txt` does the same for TOOLS, which have a separate environment.
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
UNLOCKED_EXTRAS: Final = ("bench",)  # conflicts with the other pins, see pyproject.toml
# Builds for certain GPUs or for CPUs only (+cpu, +rocm) come from other indexes; their hashes are not recorded.
CUSTOM_BUILDS: Final = ("torch",)
EDITABLES: Final = "editables"  # needed by hatchling for editable installs, but not declared in its requirements
ENTRY: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")

Hashes = dict[tuple[str, str], frozenset[str]]  # sha256 of all archives, by name and version


class Archive(NamedTuple):
    """The archive that pip chooses for a requirement on this machine."""

    name: str
    version: str  # with the local part of a custom build, such as +cpu
    sha256: str


def normalize(name: str) -> str:
    """The normalized form of a project's name, by which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def recorded_hashes(path: Path = HASHES) -> Hashes:
    """The hashes of a lock file."""
    found = ENTRY.findall(path.read_text(encoding="utf-8"))
    return {(normalize(n), v): frozenset(re.findall(r"sha256:([0-9a-f]{64})", rest)) for n, v, rest in found}


def requirements(extras: list[str]) -> list[str]:
    """Requirements of the default install, the build backend and the given extras."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, needed = file["project"], [*file["build-system"]["requires"], EDITABLES, *file["project"]["dependencies"]]
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            inner = re.match(rf"{project['name']}\[(.+?)\]", line)
            needed += requirements([part.strip() for part in inner[1].split(",")]) if inner else [line]
    return list(dict.fromkeys(needed))


def resolve_archives(extras: list[str]) -> list[Archive]:
    """The archives that pip would install here, without installing them."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report), "-c", str(CONSTRAINTS)]
        _run(*PIP, "install", *options, *requirements(extras))
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [_archive(item) for item in found]


def _archive(item: dict[str, Any]) -> Archive:
    hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
    return Archive(normalize(item["metadata"]["name"]), item["metadata"]["version"], hashes.get("sha256", ""))


def classify(archives: list[Archive], known: Hashes) -> tuple[list[Archive], list[Archive], list[Archive]]:
    """Split archives into those with a recorded hash, custom builds, which have none, and unknown ones."""
    good = [a for a in archives if a.sha256 in known.get((a.name, a.version), ())]
    custom = [a for a in archives if a not in good and a.name in CUSTOM_BUILDS and "+" in a.version]
    return good, custom, [a for a in archives if a not in good and a not in custom]


def check_archives(archives: list[Archive]) -> tuple[list[Archive], list[Archive]]:
    """Archives with a recorded hash, and custom builds; exits with a message if an archive is neither."""
    good, custom, unknown = classify(archives, recorded_hashes())
    print(f"{len(good)} archives have their recorded hash")
    for a in custom:
        print(f"{a.name} {a.version} is not the published build: its hash is not recorded and not checked")
    for a in unknown:
        print(f"{a.name} {a.version}: sha256 {a.sha256 or 'unknown'} is not recorded in {HASHES.relative_to(ROOT)}")
    if unknown:
        sys.exit("do not install these: find out where they come from (`pip config list`), or record them: make lock")
    return good, custom


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
    altered = [line for package in installed for line in altered_files(package)]
    print(*altered, f"{len(installed)} installed packages, {len(altered)} altered files", sep="\n")
    check_archives(resolve_archives(extras))
    if altered:
        sys.exit("remove .venv and install again")


def install(extras: list[str]) -> None:
    """Install the dependencies, only from archives with a recorded hash or custom builds, and Townlet itself."""
    good, custom = check_archives(resolve_archives(extras))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("".join(f"{a.name}=={a.version} --hash=sha256:{a.sha256}\n" for a in good), encoding="utf-8")
        _run(*PIP, "install", "--require-hashes", "--no-deps", "--quiet", "-r", str(file))
    for a in custom:
        _run(*PIP, "install", "--no-deps", "--quiet", f"{a.name}=={a.version}")
    _run(*PIP, "install", "--no-deps", "--no-build-isolation", "--quiet", "--editable", str(ROOT))
    _run(*PIP, "check")


def _run(*command: str, stdin: str | None = None) -> None:
    """Run a command, which prints its own error messages; exits with its code if it fails."""
    if code := subprocess.run(command, input=stdin, text=True, cwd=ROOT, check=False).returncode:
        sys.exit(code)


def lock(_: list[str]) -> None:
    """Record the hashes of all pinned versions, and of the newest versions of TOOLS."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [f"--extra={name}" for name in file["optional-dependencies"] if name not in UNLOCKED_EXTRAS]
    _compile(HASHES, "-c", str(CONSTRAINTS), *extras, "pyproject.toml", "-", stdin=EDITABLES)
    _compile(AUDIT, "-", stdin="\n".join(TOOLS))


def _compile(path: Path, *arguments: str, stdin: str = "") -> None:
    options = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", *options, f"--default-index={INDEX}"]
    _run(*uv, *arguments, "-o", str(path), stdin=stdin)
    body = path.read_text(encoding="utf-8")
    path.write_text(f"# sha256 of every published archive of these versions. Written by `make lock`.\n{body}", "utf-8")


def audit(_: list[str]) -> None:
    """Query the advisory service for known vulnerabilities of all recorded versions; no answer is an error."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--format=json", "--desc=off"]
    arguments = ["--require-hashes", "--disable-pip", "-r", str(HASHES)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    answers = json.loads(done.stdout)["dependencies"] if done.stdout.startswith("{") else []
    # A mirror without advisories has no entry for any package, which pip-audit reports as no vulnerabilities.
    if not any("vulns" in package for package in answers):
        sys.exit("the advisory service did not answer, so nothing was audited. Try again with access to pypi.org")
    for package in answers:
        if "skip_reason" in package:
            print(f"{package['name']}: not audited: {package['skip_reason']}")
        for found in package.get("vulns", ()):
            fixed = ", ".join(found["fix_versions"]) or "none yet"
            print(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    vulnerable = sum(bool(package.get("vulns")) for package in answers)
    print(f"{len(answers)} packages, {vulnerable} with known vulnerabilities")
    sys.exit(vulnerable > 0)


COMMANDS: Final = {"verify": verify, "install": install, "lock": lock, "audit": audit}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](sys.argv[2:])
