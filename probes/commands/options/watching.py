"""`--watch SCRIPT [ARGS]...`: run a script until it is clear which model it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from probes.errors import RunError
from probes.script.import_hook import ImportHook
from probes.script.program import Program, ProgramEnding, program_of, show, wait_for_threads
from probes.script.stdout_aside import stdout_to_stderr
from probes.spec import LoadedSpec

if TYPE_CHECKING:
    from probes.script.coverage import Coverage

OPTION = "--watch"
HELP = "Run SCRIPT until its first optimizer step, and use the model it trains. Must be the last option: SCRIPT and its arguments follow."


class Watching(click.Command):
    """A command whose option `--watch` takes the rest of the line as a script (or `-m MODULE`) and its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the words after `--watch` in the context."""
        if OPTION in args:
            place = args.index(OPTION)
            ctx.meta[OPTION] = tuple(args[place + 1 :])
            args = args[: place + 1]
        return super().parse_args(ctx, args)


def words(context: click.Context) -> tuple[str, ...]:
    """Return the script and its arguments."""
    found: tuple[str, ...] = context.meta.get(OPTION, ())
    return found


def watch(context: click.Context, verb: str, loaded: LoadedSpec | None = None, *, ops: bool = False) -> Coverage:
    """Run the script until its first optimizer step shows which model it trains; its stdout goes to stderr.

    Args:
        context: the context of the command.
        verb: the command, for messages.
        loaded: the spec that the model must fit; without it, any model with parameters may be meant.
        ops: list the torch functions that each module calls.

    Raises:
        RunError: no model was called.
        PlanError: several models may be meant, and no optimizer steps one of them.
        UsageError: there is no script.
    """
    ending, found = calls_of(program_of(verb, words(context), OPTION), loaded, brief=True, ops=ops)
    if found is not None and found.outermost:
        return found
    failure = (
        (found.verdict() or RunError("no call of the model returned"))
        if found is not None
        else RunError("the script did not import torch, so it called no model")
    )
    if ending.error is not None and ending.error is not failure:
        context.exit(show(ending).code)
    raise failure


def models(found: Coverage) -> Any:
    """Return the model that was called, or several by name."""
    named = {name: tree.model for name, tree in found.trees.items()}
    return named.get("", named)


def calls_of(
    program: Program, loaded: LoadedSpec | None, *, brief: bool = False, ops: bool = False
) -> tuple[ProgramEnding, Coverage | None]:
    """Run a program and count the calls of its modules; its stdout goes to stderr.

    Args:
        program: the script.
        loaded: the spec that the model must fit; without it, any model with parameters may be meant.
        brief: end the program with its first optimizer step.
        ops: list the torch functions that each module calls.

    Returns:
        How the program ended, and what was called; None if it did not import torch.
    """
    begun: list[Coverage] = []

    def torch_is_there() -> None:
        from probes.script.coverage import Coverage
        from probes.script.model.choice import ModelChoice, choice_for
        from probes.script.model.model_rules import AnyModule

        begun.append(Coverage(choice_for(loaded) if loaded is not None else ModelChoice(AnyModule()), brief=brief, ops=ops))
        begun[0].start()

    import_hook = ImportHook("torch", torch_is_there)
    import_hook.start()
    try:
        with stdout_to_stderr():
            ending = program.execute()
            ending = ending if brief else wait_for_threads(ending)
    finally:
        import_hook.stop()
        for one in begun:
            one.stop()
    return ending, begun[0] if begun else None
