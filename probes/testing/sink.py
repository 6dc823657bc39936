"""Rules for sinks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

from probes.clock import Clock, SeriesKey
from probes.component import Number, Reading, Sink, SinkContext
from probes.sinks.kernels.run_file import name_fault, on_rank
from probes.testing.component import check_component
from probes.testing.values import generators

STATS: dict[str, Number] = {"mean": 0.5, "max": -1e300, "nan": "nan", "+inf": "inf", "-inf": "-inf"}
"""Numbers of one capture with labels, some of them not finite."""


def check_sink(sink: Sink) -> None:
    """Check that a sink writes what it declares, when it must, and changes nothing else.

    The sink is opened in an empty folder, gets two steps and is closed; then it is opened again, as by a resumed run, and once
    as rank 3. The readings have numbers of every type, labels, the root module, the phase `eval`, a later call, and a late one.

    - `files` are different plain names, the same each time; `most_elements` is None or at least 1.
    - Only the paths in `context.files` are written, and nothing on stdout, which belongs to the program.
    - What a file holds after the first step is still there at the end: a session does not rewrite it, and does not wait for `close`
      to write all. A second session appends.
    - Readings and the global random generators are untouched.

    Args:
        sink: the sink, with the settings to check.

    Raises:
        AssertionError: the sink breaks a rule; the message says which.
    """
    check_component(sink)
    _check_declared(sink)
    with TemporaryDirectory() as name:
        folder = Path(name)
        first = _session(sink, folder, 0, 0)
        second = _session(sink, folder, 0, 2)
        for file, text in first.items():
            assert second[file].startswith(text), f'a second session of `{sink.kind}` does not keep what the first wrote into "{file}"'
    with TemporaryDirectory() as name:
        _session(sink, Path(name), 3, 0)


def readings(step: int) -> list[Reading]:
    """The readings of one step that `check_sink` gives to a sink."""
    at = Clock(1, "train", step, 100 + step, 0, 0, 0, 0)
    return [
        Reading(SeriesKey("size", "fc1", "output", "train"), at, False, dict(STATS)),
        Reading(SeriesKey("size", "fc1", "output", "train"), at._replace(call=1), False, {"": 2}),
        Reading(SeriesKey("size", "", "output.a/b", "eval"), at._replace(phase="eval", microstep=2), False, {"0/1": True, "1": "(1+2j)"}),
        Reading(SeriesKey("grad", "blocks.0.\u00e9", "grad", "train"), at._replace(step=step - 1, global_step=-1), True, {"": 0.25}),
        Reading(SeriesKey("none", "fc1", "output", "train"), at, False, {}),
    ]


def _check_declared(sink: Sink) -> None:
    limit, files = sink.most_elements(), sink.files()
    assert limit is None or limit >= 1, f"`most_elements` of `{sink.kind}` is {limit}; no capture could be taken"
    assert len({*files}) == len(files), f"`files` of `{sink.kind}` has a name twice: {files}"
    assert sink.files() == files, f"`files` of `{sink.kind}` differs the second time"
    for file in files:
        fault = name_fault(file)
        assert not fault, f'`files` of `{sink.kind}` has "{file}"; {fault}'


def _session(sink: Sink, folder: Path, rank: int, start: int) -> dict[str, bytes]:
    """The contents of the files after one session."""
    files = tuple(on_rank(file, rank) for file in sink.files())
    state, printed = generators(), io.StringIO()
    with redirect_stdout(printed):
        session = sink.open(SinkContext(rank, tuple(folder / file for file in files)))
        _step(sink, session.step, start)
        early = _content(folder)
        _step(sink, session.step, start + 1)
        session.close()
    late = _content(folder)
    assert not printed.getvalue(), f"`{sink.kind}` writes to stdout, which belongs to the program"
    assert generators() == state, f"`{sink.kind}` draws from a global random generator"
    undeclared = sorted(late.keys() - {*files})
    assert not undeclared, f'`{sink.kind}` writes "{next(iter(undeclared), "")}", which `files` does not declare, on rank {rank}'
    for file, text in late.items():
        assert early.get(file) or not text, f'`{sink.kind}` writes "{file}" only when it is closed, not when a step is committed'
        assert text.startswith(early.get(file, b"")), f'`{sink.kind}` rewrites "{file}", of which a reader may have read a part'
    return late


def _step(sink: Sink, take: object, step: int) -> None:
    assert callable(take), f"the session of `{sink.kind}` has no `step`"
    given = readings(step)
    kept = deepcopy(given)
    take(given)
    assert _same(given, kept), f"`{sink.kind}` changes the readings, which other sinks get too"


def _same(left: Sequence[Reading], right: Sequence[Reading]) -> bool:
    return list(left) == list(right)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
