"""Tries the lowest declared versions of all dependencies and the newest, on each supported Python: `make compat`.

Each row gets an environment of its own, made by uv: the package with the extras below, then the demo, then the core tests. The result
goes to docs/compat.json after each row, and as a table to docs/compat.md. An environment is removed after its row.

Usage: python -m tests.compat [--uv UV] [--only 3.11-lowest]... [--render]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from tests.pages import ROOT

PAGE = ROOT / "docs" / "compat.md"
RESULT = PAGE.with_suffix(".json")
BEGIN, END = "<!-- rows: written by `make compat` -->", "<!-- end of rows -->"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
EXTRAS = "torch,xarray,frame,parquet,zstd,blosc2,plot,report,demo"
TOOLS = ("pytest>=8", "pytest-randomly>=3.15", "hypothesis>=6.100", "jsonschema>=4.21", "rich>=13")
SHOWN = ("torch", "numpy", "h5py", "pydantic", "xarray", "pandas")
CORE = (
    "tests/hooks/capture/test_compiled.py",
    "tests/hooks/capture/test_same_kind.py",
    "tests/hooks/test_kinds_of_tensor.py",
    "tests/runner/test_capture.py",
    "tests/runner/test_capture_gradients.py",
    "tests/capture_file/test_layout.py",
    "tests/capture_file/test_viewers.py",
    "tests/reader/test_convert.py",
    "tests/reader/test_series.py",
    "tests/reader/test_series_set.py",
    "tests/spec/test_load.py",
    "tests/spec/test_compose.py",
    "tests/transforms/test_stats.py",
)
"""What touches the interfaces of other packages: torch's hooks and compiler, HDF5, arrays and frames, YAML, and real programs."""
LIMIT_S = 5400.0


def names() -> list[str]:
    """The rows, such as `3.11-lowest`."""
    return [f"{python}-{versions}" for python in PYTHONS for versions in RESOLUTIONS]


def tried(name: str, uv: str) -> dict[str, Any]:
    """Try one row in a new environment.

    Args:
        name: Python and versions, such as `3.11-lowest`.
        uv: the command of uv.
    """
    python, _, versions = name.partition("-")
    with tempfile.TemporaryDirectory(prefix="probes-compat-") as folder:
        place = Path(folder) / "environment"
        began = time.monotonic()
        refused = _made(uv, place, python, RESOLUTIONS[versions])
        row: dict[str, Any] = {"python": python, "versions": versions, "install_s": round(time.monotonic() - began)}
        if refused:
            return {**row, "refused": refused}
        listed = json.loads(_said([uv, "pip", "list", "--format", "json", "-p", place]).stdout)
        row["packages"] = {one["name"].lower(): one["version"] for one in listed}
        row["python"] = _said([place / "bin/python", "-c", "import platform; print(platform.python_version())"]).stdout.strip()
        return {**row, "demo": _demo(place, Path(folder)), **_tests(place, Path(folder))}


def _made(uv: str, place: Path, python: str, resolution: str) -> str:
    """Make the environment; return why that fails, in uv's words, or nothing."""
    package = f"{ROOT}[{EXTRAS}]"
    install = [uv, "pip", "install", "--quiet", "-p", place]
    for words in (
        [uv, "venv", "--quiet", "--no-python-downloads", "-p", python, place],
        [
            uv,
            "pip",
            "install",
            "--quiet",
            "-p",
            place,
            "--only-binary",
            ":all:",
            "--no-binary",
            "torch-probes",
            "--resolution",
            resolution,
            package,
        ],
        [*install, *TOOLS],
    ):
        done = _said(words)
        if done.returncode:
            return " ".join(done.stderr.split())[:400]
    return ""


def _demo(place: Path, folder: Path) -> str:
    """Return `passes`, or the last line of what the demo says."""
    done = _said([place / "bin/probes", "demo", "digits"], folder, PATH=f"{place / 'bin'}:{os.environ['PATH']}")
    return "passes" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:400]


def _tests(place: Path, folder: Path) -> dict[str, Any]:
    """Run the core tests; return the counts of results and the names of tests that fail."""
    options = [
        "-q",
        "-m",
        "not torture",
        "-k",
        "not inductor",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-W",
        "default",
        "--tb=short",
    ]
    began = time.monotonic()
    done = _said([place / "bin/python", "-m", "pytest", *options, f"--basetemp={folder / 'tests'}", *CORE])
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)s?\b", done.stdout.splitlines()[-1])}
    failing = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    if failing or not counts:
        Path(tempfile.gettempdir(), f"compat-{place.parent.name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return {"tests": counts, "failing": failing, "tests_s": round(time.monotonic() - began)}


def _said(words: list[Any], folder: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the packages of this environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(word) for word in words], cwd=folder, env={**kept, **environ}, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows as a table of Markdown, below it why a row is missing or fails."""
    head = ["Python", "versions", *SHOWN, "demo", "core tests"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    notes = []
    for row in rows.values():
        packages = row.get("packages", {})
        cells = [row["python"], row["versions"], *(packages.get(name, "") for name in SHOWN)]
        lines.append("| " + " | ".join([*cells, row.get("demo", "not installed"), _counts(row)]) + " |")
        notes += [
            f"- Python {row['python']}, {row['versions']}: {text}" for text in [row.get("refused", ""), *row.get("failing", [])] if text
        ]
    return "\n".join([BEGIN, *lines, *([""] if notes else []), *notes, END])


def _counts(row: dict[str, Any]) -> str:
    return (
        ", ".join(f"{count:,} {word}" for word, count in sorted(row.get("tests", {}).items(), key=lambda one: one[0] == "skipped"))
        or "not run"
    )


def page(text: str) -> str:
    """The page with the table of the last results in its place."""
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    before, rest = text.split(BEGIN)
    return before + table({name: rows[name] for name in names() if name in rows}) + rest.split(END)[1]


def declared() -> dict[str, str]:
    """The lowest version of each package that pyproject.toml declares for the rows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = [*project["dependencies"], *(one for name in EXTRAS.split(",") for one in extras[name] if not one.startswith("torch-probes"))]
    return {name.lower(): low for name, low in (one.split(">=") for one in found)}


def main() -> None:
    """Try the rows that are requested, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uv", default=shutil.which("uv") or "uv", help="the command of uv")
    parser.add_argument("--only", action="append", choices=names(), help="a row; may be given several times")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    asked = parser.parse_args()
    for name in [] if asked.render else asked.only or names():
        found = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"rows": {}}
        found["rows"][name] = tried(name, asked.uv)
        RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(name, found["rows"][name].get("refused") or found["rows"][name]["demo"], found["rows"][name].get("tests", ""), flush=True)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
