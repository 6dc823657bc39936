"""Finding the model of a script while several of its threads call and train one."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import pytest
import torch
from torch import Tensor, nn

from probes.errors import PlanError
from probes.script.model.choice import Candidate, choice_for
from probes.script.model.finder import ModelFinder
from probes.spec import load_spec


class Net(nn.Module):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 1)
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append("called")
        found: Tensor = self.fc(x)
        return found


class SlowListener:
    """Binds a candidate until the test continues it, because `attach` takes time."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        self.begins, self.goes_on = Event(), Event()
        self.bound: list[Candidate] = []

    def candidate_called(self, candidate: Candidate) -> None:
        self.begins.set()
        assert self.goes_on.wait(30)
        self.calls.append("bound")
        self.bound.append(candidate)

    def candidate_chosen(self, candidate: Candidate) -> None:
        assert candidate in self.bound
        self.calls.append("chosen")

    def refused(self, error: PlanError) -> None:
        raise error


@pytest.fixture
def finder() -> Iterator[ModelFinder]:
    spec = load_spec({"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}})
    found = ModelFinder(choice_for(spec), SlowListener([]))
    found.start()
    yield found
    found.stop()


def test_a_second_thread_that_trains_the_model_waits_until_the_first_has_bound_it(finder: ModelFinder) -> None:
    listener = finder.listener
    assert isinstance(listener, SlowListener)
    net = Net(listener.calls)

    def train() -> None:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    first, second = Thread(target=train), Thread(target=train)
    first.start()
    assert listener.begins.wait(30)
    second.start()
    second.join(0.2)  # time enough for a call that would not wait
    assert listener.calls == []
    listener.goes_on.set()
    first.join(30)
    second.join(30)
    assert listener.calls.count("bound") == listener.calls.count("chosen") == 1
    assert listener.calls[0] == "bound"
    assert listener.calls.count("called") == 2
