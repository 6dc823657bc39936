"""Write small captures into an event file of TensorBoard."""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from probes.component import Number, Reading, Sink, SinkContext, SinkSession
from probes.optional_package import import_optional
from probes.plain_file import HeldDescriptor
from probes.sinks.kernels.background import BackgroundSession
from probes.sinks.kernels.metrics import series_name, step_metrics
from probes.sinks.kernels.run_evidence import evidence, verify_command
from probes.sinks.kernels.run_file import open_to_append

INTERVAL = re.compile(r"\[(\S+), (\S+)[\])]")
HEAD = struct.Struct("<QI")
LONGEST_TEXT = 100_000


class Tensorboard(Sink):
    """Appends small captures to an event file in the run directory, which TensorBoard shows: `tensorboard --logdir runs`.

    Numbers are scalars named `probe/target/leaf/label`, after the phase unless that is `train`. A `histogram` is a
    histogram. Ledger head, captures roots and the command that verifies them are the text `probes/run`, the spec is `probes/spec`.
    The x axis is `global_step`.
    """

    kind: Literal["tensorboard"] = "tensorboard"
    max_elements: int = Field(
        default=259, ge=1, le=65539, description="Largest number of elements of a capture; a larger capture is refused."
    )
    wait: Annotated[float, Field(gt=0, description="Seconds to wait at the end of the run for what is still to be written.")] = 10.0

    def most_elements(self) -> int:
        """`max_elements`."""
        return self.max_elements

    def files(self) -> tuple[str, ...]:
        """One event file; TensorBoard finds it by its name."""
        return ("probes.tfevents",)

    def open(self, context: SinkContext) -> SinkSession:
        """Open the file to append to it; a record that a killed process left unfinished is cut off.

        Raises:
            MissingExtra: the package tensorboard is not installed.
            OSError: the file cannot be opened, is a link, or is not a plain file.
        """
        events = _EventFile(context)
        return BackgroundSession(lambda: events, context.closing, self.wait)


class _EventFile:
    """Appends records to an event file."""

    def __init__(self, context: SinkContext) -> None:
        path, self.rank = context.files[0], context.rank
        self.tags, self.directory = context.tags, context.directory
        self.event = import_optional("tensorboard.compat.proto.event_pb2", "tensorboard", "the sink `tensorboard`")
        self.summary = import_optional("tensorboard.compat.proto.summary_pb2", "tensorboard", "the sink `tensorboard`")
        writer = import_optional("tensorboard.summary.writer.record_writer", "tensorboard", "the sink `tensorboard`").RecordWriter
        self.held = HeldDescriptor(open_to_append(path, whole_records))
        self.file = os.fdopen(self.held.number, "ab", closefd=False)
        self.records = writer(self.file)
        if not path.stat().st_size:
            self._write([self.event.Event(wall_time=time.time(), file_version="brain.Event:2")])

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        """Append the readings of some steps, in one write."""
        self._write([event for readings in steps for event in self._events(readings)])

    def end(self, tags: Mapping[str, str]) -> None:
        """Append the facts of the run, and close the file."""
        known = {**self.tags, **tags, **verify_command(self.tags, tags)}
        texts = {"run": "\n".join(f"{name}: {value}" for name, value in known.items())}
        for path in evidence(self.directory, "proof"):
            if path.name == "spec.yaml":
                texts["spec"] = path.read_text(encoding="utf-8", errors="replace")[:LONGEST_TEXT]
        self._write([self._text(name, text) for name, text in texts.items()])
        self.file.close()
        self.held.close()

    def _text(self, name: str, text: str) -> Any:
        """The event of a text that TensorBoard shows as it is; lines that begin with four spaces are code in its Markdown."""
        indented = "\n".join(f"    {line}" for line in text.splitlines())
        tensor = import_optional("tensorboard.util.tensor_util", "tensorboard", "the sink `tensorboard`").make_tensor_proto(
            indented.encode()
        )
        about = self.summary.SummaryMetadata(plugin_data=self.summary.SummaryMetadata.PluginData(plugin_name="text"))
        return self._event(0, [self.summary.Summary.Value(tag=f"probes/{name}/text_summary", metadata=about, tensor=tensor)])

    def _write(self, events: Sequence[Any]) -> None:
        self.held.require()
        for event in events:
            self.records.write(event.SerializeToString())
        self.records.flush()

    def _event(self, step: int, values: Sequence[Any]) -> Any:
        return self.event.Event(wall_time=time.time(), step=step, summary=self.summary.Summary(value=values))

    def _events(self, readings: Sequence[Reading]) -> list[Any]:
        plain = [reading for reading in readings if not _is_histogram(reading.numbers)]
        value = self.summary.Summary.Value
        events = [
            self._event(step.global_step, [value(tag=name, simple_value=_single(number)) for name, number in step.values.items()])
            for step in step_metrics(plain, self.rank, plain=False)
        ]
        counted = [reading for reading in readings if _is_histogram(reading.numbers) and reading.clock.global_step >= 0]
        for reading in counted:
            found = value(tag=series_name(reading, self.rank), histo=self.summary.HistogramProto(**histogram(reading.numbers)))
            events.append(self._event(reading.clock.global_step, [found]))
        return events


def histogram(numbers: Mapping[str, Number]) -> dict[str, Any]:
    """The fields of TensorBoard's histogram for the counts of the transform `histogram`; it has no place for NaN.

    Counts below and above the bounds have buckets of no width at the bounds; sums take each element at the middle of its bin.
    """
    bounds = [INTERVAL.fullmatch(label) for label in list(numbers)[1:-2]]
    low = [float(bound[1]) for bound in bounds if bound is not None]
    high = [float(bound[2]) for bound in bounds if bound is not None]
    counts = [float(count) for count in list(numbers.values())[:-1]]
    middles = [low[0], *((a + b) / 2 for a, b in zip(low, high, strict=True)), high[-1]]
    return {
        "min": low[0],
        "max": high[-1],
        "num": sum(counts),
        "sum": sum(count * middle for count, middle in zip(counts, middles, strict=True)),
        "sum_squares": sum(count * middle**2 for count, middle in zip(counts, middles, strict=True)),
        "bucket_limit": [low[0], *high, high[-1]],
        "bucket": counts,
    }


def whole_records(handle: int, size: int) -> int:
    """The length of the whole records at the beginning of an event file of some size."""
    end = 0
    while end + HEAD.size <= size:
        length, _ = HEAD.unpack(os.pread(handle, HEAD.size, end))
        if end + HEAD.size + length + 4 > size:
            break
        end += HEAD.size + length + 4
    return end


def _is_histogram(numbers: Mapping[str, Number]) -> bool:
    labels = [*numbers]
    return labels[:1] == ["under"] and labels[-2:] == ["over", "nan"] and all(map(INTERVAL.fullmatch, labels[1:-2])) and len(labels) > 3


def _single(number: float) -> float:
    """A number that float32 holds; a larger one is infinite."""
    return number if number != number or abs(number) <= 3.4028234663852886e38 else float("inf") * (1 if number > 0 else -1)
