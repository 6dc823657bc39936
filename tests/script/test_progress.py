from io import StringIO

from probes.progress.status_line import ERASE
from probes.script.progress import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_are_shown_on_a_terminal_only() -> None:
    file = StringIO()
    Progress(stream=file).step(0, "train", 0)
    assert file.getvalue() == ""


def test_the_live_line_is_not_drawn_for_every_step_and_disappears_for_a_message() -> None:
    terminal = Terminal()
    progress = Progress(stream=terminal)
    for step in range(100):
        progress.step(2, "train", step)
    progress.say("epoch 2 is over")
    assert terminal.getvalue() == f"{ERASE}epoch 2  train step 0{ERASE}epoch 2 is over\n"


def test_quiet_prints_nothing_on_a_terminal() -> None:
    terminal = Terminal()
    progress = Progress(quiet=True, stream=terminal)
    progress.step(0, "train", 0)
    progress.say("bound")
    assert terminal.getvalue() == ""
