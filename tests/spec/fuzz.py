"""Texts that are nearly specs, and what must hold of whatever is said of them.

Usage: python -m tests.spec.fuzz RUNS CORPUS     (a fuzzer that is led by coverage; needs atheris)
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

from hypothesis import strategies as st

from probes.error_codes import CODES
from probes.errors import Problem, SpecError
from probes.spec import Spec, load_text
from tests.regenerate import SPECS

TEXTS = [path.read_text("utf-8") for path in sorted((SPECS / "valid").glob("*.yaml"))]
WORDS = sorted({word for text in TEXTS for word in re.findall(r"[\w.-]+", text)})
TOKENS = [*"{}[]:,-*#|\n\t\"'~", "  ", "&a ", "!b ", "${", "0", "-1", "1e99", "true", "\x00", "é", "kind: ", "<<: ", "---\n", "? ", *WORDS]
KEYS = sorted({*Spec.model_fields, "extends", "vars"})
INNER = ["kind", "hook", "modules", "when", "steps", "every", "at", "transforms", "edit", "from", "dims", "values", "sinks", "trigger"]


def told(text: bytes) -> None:
    """Load a text, which is a spec or is refused with codes that are declared, in less than five seconds of work."""
    began = time.process_time()
    problems: tuple[Problem, ...] = ()
    try:
        loaded = load_text(text, "a.yaml", SPECS / "valid")
        assert loaded.identity_hash
    except SpecError as error:
        problems = error.problems or (Problem("nothing", "refused without a problem"),)
    assert time.process_time() - began < 5
    assert {problem.code for problem in problems} <= set(CODES)
    assert all(str(problem) for problem in problems)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A spec with some places written over."""
    text = draw(st.sampled_from(TEXTS))
    for place, cut, token in draw(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(TOKENS)), min_size=1, max_size=4)
    ):
        place %= len(text)
        text = text[:place] + token + text[place + cut :]
    return text.encode()


@st.composite
def shuffled(draw: st.DrawFn) -> bytes:
    """Lines of two specs in any order."""
    lines = [line for text in draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2)) for line in text.split("\n")]
    order = draw(st.lists(st.integers(0, len(lines) - 1), max_size=len(lines)))
    return "\n".join(lines[index] for index in order).encode()


PLAIN = st.recursive(
    st.sampled_from([0, 1, -1, 2.5, True, "", "output", "train", "a.*", "hdf5", "scale", "${x}", "nonfinite"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def made(draw: st.DrawFn) -> bytes:
    """Plain data under the keys of a spec."""
    top = draw(st.dictionaries(st.sampled_from(KEYS), PLAIN, max_size=4))
    probes = draw(st.dictionaries(st.sampled_from(["a", "b", "../c"]), PLAIN, max_size=2))
    return json.dumps({**top, "version": 1, "probes": probes}).encode()


KINDS = {"mutated": mutated(), "shuffled": shuffled(), "made": made(), "bytes": st.binary(max_size=200)}


GUIDING = ("probes.spec", "probes.module_glob", "probes.value_path", "probes.component")


def functions(holder: object) -> Iterator[FunctionType]:
    """The functions and methods that are written in a module."""
    for value in list(vars(holder).values()):
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and value.__module__ == getattr(holder, "__name__", ""):
            yield from (method for method in vars(value).values() if isinstance(method, FunctionType))


def main(runs: int, corpus: Path) -> None:
    """Fuzz with coverage as the guide: inputs that reach new code are kept and changed further."""
    import atheris

    for name, module in list(sys.modules.items()):
        if name.startswith(GUIDING):
            for function in functions(module):
                atheris.instrument_func(function)
    for index, text in enumerate([*TEXTS, *(path.read_text("utf-8", "replace") for path in (SPECS / "invalid").glob("*.yaml"))]):
        (corpus / f"{index:03d}").write_text(text, "utf-8")
    tokens = corpus.parent / "tokens"
    tokens.write_text("".join(f'"{word}"\n' for word in WORDS if word.isascii()), "utf-8")
    atheris.Setup([sys.argv[0], f"-runs={runs}", f"-dict={tokens}", "-max_len=4096", "-seed=1", "-verbosity=0", str(corpus)], told)
    atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
