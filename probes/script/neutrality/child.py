"""Record what a program computes, with or without probes, for a bit-for-bit comparison of two runs.

Run as `python -m probes.script.neutrality.child FILE`, with the job as JSON in the file. It seeds every generator before the
program begins, so that a program without seeds can be compared too, and then only reads bytes: of losses and gradients as
they pass, of weights, buffers and generators. It calls no module, draws no random number, and does the same whether there
are probes or not.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.errors import ProbesError
from probes.script.import_hook import ImportHook
from probes.script.program import Program, show, wait_for_threads
from probes.script.progress import Progress
from probes.script.run_request import RunRequest
from probes.script.session import Session
from probes.spec import load_spec

if TYPE_CHECKING:
    from probes.script.neutrality.neutrality_record import NeutralityRecord


@dataclass(frozen=True)
class NeutralityJob:
    """The job of a neutrality child.

    Attributes:
        record: where to write, one line of JSON for each event.
        program: name of the program.
        arguments: its arguments.
        is_module: whether `program` names a module.
        spec: the spec to probe with; empty for none.
        out: the run directory, where there is a spec.
        overrides: `path=value` texts for the spec.
        allowed: kinds of plug-ins that may be imported.
    """

    record: str
    program: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    spec: str = ""
    out: str = ""
    overrides: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def text(self) -> str:
        """The job as one line."""
        return json.dumps(asdict(self))


class NeutralityChild:
    """Begins a record when the program imports torch, and ends it when the program and its probes have ended."""

    def __init__(self, job: NeutralityJob) -> None:
        self.job = job
        self.record: NeutralityRecord | None = None

    def run(self) -> int:
        """Run the program, with probes if the job has a spec.

        Returns:
            The exit code.
        """
        job = self.job
        program = Program(job.program, tuple(job.arguments), job.is_module)
        random.seed(0)
        import_hooks = [ImportHook("numpy", _seed_numpy), ImportHook("torch", self._torch_is_there)]
        for import_hook in import_hooks:
            import_hook.start()
        try:
            code = self._probed(program) if job.spec else wait_for_threads(show(program.execute())).code
        finally:
            for import_hook in import_hooks:
                import_hook.stop()
        if self.record is not None:
            self.record.close(code)
        return code

    def _probed(self, program: Program) -> int:
        loaded = load_spec(self.job.spec, overrides=tuple(self.job.overrides), allow_plugins=tuple(self.job.allowed))
        outcome = Session(RunRequest(loaded, self.job.out), Progress(quiet=True)).run(program)
        if outcome.failure is not None:
            print(outcome.failure, file=sys.stderr)
        return outcome.code

    def _torch_is_there(self) -> None:
        import torch

        from probes.script.neutrality.neutrality_record import NeutralityRecord

        torch.manual_seed(0)
        self.record = NeutralityRecord(Path(self.job.record))
        self.record.start()


def _seed_numpy() -> None:
    import numpy

    numpy.random.seed(0)


def main() -> Any:
    """Run the job of a file; the standard input is the program's."""
    job = NeutralityJob(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    try:
        return NeutralityChild(job).run()
    except ProbesError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
