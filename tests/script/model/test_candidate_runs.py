"""Scripts that call several models that a spec fits: the one that is trained is captured, from its first call, and the others are named."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

import probes
from probes.runner.watch.process_hooks import optimizer_begins, optimizer_stepped
from probes.script.model.candidate_runs import CandidateRuns
from tests.script.conftest import PRELUDE, Outcome, Probed
from tests.warm import programs

BY_HAND = """
import copy, os
saved = []
def by_hand(net):
    def save(module, args, output):
        saved.append(output.detach().clone())
        torch.save(saved, os.path.join(os.path.dirname(os.path.abspath(__file__)), "saved.pt"))
    net.fc.register_forward_hook(save)
"""
TEACHER = (
    BY_HAND
    + """
net = Net()
teacher = copy.deepcopy(net)
by_hand(net)
optimizer = SGD(net.parameters(), lr=0.1)
data = loader(8, 2)
for epoch in range(2):
    for (x,) in data:
        with torch.no_grad():
            target = teacher(x)
        optimizer.zero_grad()
        (net(x) - target - 1).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(teacher.parameters(), net.parameters()):
                average.lerp_(parameter, 0.5)
"""
)


def same(done: Outcome) -> None:
    """What was captured of `fc` is what the script's own hook saved."""
    stored = probes.open(done.out)["acts", "fc"].torch()
    saved = torch.load(done.out.parent / "saved.pt")
    assert len(stored) == len(saved) > 0
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(stored, saved, strict=True))


def alone(done: Outcome) -> bool:
    """Whether nothing is left of other candidates."""
    return [path.name for path in done.out.parent.iterdir() if path.name.startswith("run")] == ["run"]


def models(done: Outcome) -> list[str]:
    """The lines on models that were called, without places."""
    lines = [line for line in done.said.splitlines() if line.startswith("model  ")]
    return [" ".join(word for word in line.split()[1:] if "train.py:" not in word) for line in lines]


def test_a_teacher_that_is_called_first_is_not_the_model(probed: Probed) -> None:
    done = probed(TEACHER)
    assert done.code == 0
    assert done.steps() == {0: 4, 1: 4}
    same(done)
    assert alone(done)
    assert models(done) == [
        "Net first called at 8 calls no optimizer step not captured",
        "Net first called at 8 calls 8 optimizer steps captured",
    ]
    assert "dropped: Net (first called at" in done.said


def test_the_run_of_a_later_candidate_has_ordinary_names_and_verifies(probed: Probed) -> None:
    done = probed(TEACHER)
    assert sorted(path.name for path in done.out.iterdir()) == ["epoch-0000.h5", "epoch-0001.h5", "ledger.jsonl", "run.json", "spec.yaml"]
    assert probes.verify(done.out).ok
    assert probes.open(done.out).state == {0: "complete", 1: "complete"}


def test_segments_that_are_sealed_before_the_choice_belong_to_the_run(probed: Probed) -> None:
    """The student is evaluated for some steps before it is trained."""
    spec = {
        "version": 1,
        "sinks": {"files": {"kind": "hdf5", "seal": {"steps": 2}}},
        "probes": {"acts": {"hook": "forward", "modules": ["fc"], "when": {"phases": ["train", "eval"]}}},
    }
    evaluate = "for i in range(5):\n    with torch.no_grad(): teacher(torch.ones(1, 3)), net(torch.ones(1, 3))\ndata = loader"
    done = probed(TEACHER.replace("data = loader", evaluate), spec)
    assert done.code == 0
    assert (len(done.clocks("eval")), len(done.clocks("train"))) == (5, 8)
    assert probes.verify(done.out).ok
    assert alone(done)


def test_a_resumed_run_continues_with_the_candidate_that_it_captured(probed: Probed) -> None:
    assert probed(TEACHER).code == 0
    done = probed(TEACHER, resume=True)
    run = probes.open(done.out)
    assert run.state == dict.fromkeys(range(4), "complete")
    assert len(run["acts", "fc"]) == 16
    assert probes.verify(done.out).ok


def test_a_resumed_run_that_trains_another_candidate_is_refused_and_keeps_its_captures(probed: Probed) -> None:
    out = probed(TEACHER).out
    done = probed(TEACHER.replace("SGD(net.parameters()", "SGD(teacher.parameters()"), resume=True)
    assert done.code == 2
    assert "but another that fits the spec was captured before; in a run that is resumed the spec must select the model" in done.said
    assert probes.open(out).state == {0: "complete", 1: "complete", 2: "incomplete"}
    assert probes.verify(out).ok


def test_a_loss_network_that_fits_is_not_the_model(probed: Probed) -> None:
    done = probed(
        BY_HAND
        + dedent("""
        class Perceptual(Net):
            pass
        features = Perceptual().eval().requires_grad_(False)
        net = Net()
        by_hand(net)
        optimizer = SGD(net.parameters(), lr=0.1)
        for (x,) in loader(8, 2):
            with torch.no_grad():
                wanted = features(x)
            optimizer.zero_grad()
            (features(x + net(x)) - wanted).square().sum().backward()
            optimizer.step()
        """),
        {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}},
    )
    assert done.code == 0
    same(done)


def test_the_model_of_a_gan_that_is_stepped_first_is_captured_and_the_other_is_named(probed: Probed) -> None:
    done = probed(
        BY_HAND
        + dedent("""
        class Generator(Net):
            pass
        class Critic(Net):
            pass
        generator, critic = Generator(), Critic()
        by_hand(critic)
        of_generator, of_critic = SGD(generator.parameters(), lr=0.1), SGD(critic.parameters(), lr=0.1)
        for (x,) in loader(8, 2):
            fake = generator(x) * torch.ones(3)
            of_critic.zero_grad()
            (critic(fake.detach()) - critic(x)).sum().backward()
            of_critic.step()
            of_generator.zero_grad()
            critic(fake).sum().backward()
            of_generator.step()
        """)
    )
    assert done.code == 0
    same(done)
    assert models(done) == [
        "Generator first called at 4 calls 4 optimizer steps not captured",
        "Critic first called at 12 calls 4 optimizer steps captured",
    ]


def test_an_optimizer_step_that_raises_and_is_repeated_counts_once(probed: Probed) -> None:
    done = probed("""
    class Flaky(SGD):
        tried = 0
        def step(self, closure=None):
            Flaky.tried += 1
            if Flaky.tried % 3 == 0:
                raise ConnectionError
            return super().step(closure)
    net = Net()
    SGD(net.parameters(), lr=0.1)  # PyTorch calls its hooks in the steps of both classes
    optimizer = Flaky(net.parameters(), lr=0.1)
    for (x,) in loader(12, 2):
        optimizer.zero_grad()
        net(x).sum().backward()
        try:
            optimizer.step()
        except ConnectionError:
            optimizer.step()
    """)
    assert done.steps() == {0: 6}
    assert models(done) == ["Net first called at 6 calls 6 optimizer steps captured"]
    assert "seen: 6 optimizer steps, 6 batches" in done.said


@pytest.mark.parametrize("more", [{"values": ["update"]}, {"hook": "tensor", "when": {"trigger": {"kind": "nonfinite"}}}])
def test_a_candidate_with_hooks_on_optimizers_is_dropped_within_a_step(probed: Probed, more: dict[str, Any]) -> None:
    """A GAN: PyTorch iterates over its hooks on optimizers while the first step selects the second model."""
    spec = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}, "more": {"tensors": ["fc.weight"], **more}}}
    program = """
    class Critic(Net):
        pass
    net, critic = Net(), Critic()
    optimizers = SGD(critic.parameters(), lr=0.1), SGD(net.parameters(), lr=0.1)
    changes = []
    for (x,) in loader(8, 2):
        fake = net(x).detach().expand(-1, 3)
        before = critic.fc.weight.detach().clone()
        step(critic, optimizers[0], x + fake)
        changes.append(critic.fc.weight.detach() - before)
        step(net, optimizers[1], x)
    torch.save(torch.stack(changes), __file__.replace("train.py", "changes.pt"))
    """
    done = probed(program, spec)
    assert done.code == 0
    assert done.steps() == {0: 4}
    assert alone(done)
    if "values" in more:
        assert torch.equal(probes.open(done.out)["more", "fc.weight"].torch(), torch.load(done.out.parent / "changes.pt"))
    assert not optimizer_begins._listeners
    assert not optimizer_stepped._listeners
    assert "1 further model that fits the spec was trained and not captured: `models: {model: Net}` captures it instead" in done.said


def test_a_candidate_that_is_dropped_in_a_backward_pass_reports_no_gradients(probed: Probed, capsys: pytest.CaptureFixture[str]) -> None:
    """Distillation with an optimizer in the backward pass: gradients of the teacher come after it was dropped."""
    spec = {"version": 1, "probes": {"grads": {"modules": ["fc"], "values": ["grad_output"]}}}
    done = probed(
        """
        teacher, net = Net(), Net()
        for parameter in net.parameters():
            optimizer = SGD([parameter], lr=0.1)
            parameter.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: (optimizer.step(), optimizer.zero_grad()) and None)
        for (x,) in loader(8, 2):
            target = teacher(x)
            (net(x) - target).square().sum().backward()
        """,
        spec,
    )
    assert (done.code, done.steps(probe="grads")) == (0, {0: 4})
    assert "skipped" not in done.said + capsys.readouterr().err


def test_instances_that_train_later_are_named_with_their_steps(probed: Probed) -> None:
    """k-fold: a model for each fold."""
    done = probed("""
    for fold in range(3):
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for (x,) in loader(8, 2):
            step(net, optimizer, x)
    """)
    assert done.code == 0
    assert done.steps() == {0: 4}
    assert models(done) == [
        "Net first called at 4 calls 4 optimizer steps captured",
        "Net first called at 4 calls 4 optimizer steps not captured",
        "Net first called at 4 calls 4 optimizer steps not captured",
    ]
    assert "2 further models that fit the spec were trained and not captured: `models: {model: {class: Net, instances: all}}`" in done.said


def test_every_trained_instance_is_a_separate_run_if_the_spec_requires_it(probed: Probed) -> None:
    spec = {"version": 1, "models": {"m": {"class": "Net", "instances": "all"}}, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}}
    done = probed(
        """
        saved = []
        for fold in range(3):
            net, other = Net(), Net()
            net.fc.register_forward_hook(lambda module, args, output: saved.append(output.detach().clone()))
            optimizer = SGD(net.parameters(), lr=0.1)
            for (x,) in loader(8, 2):
                step(net, optimizer, x)
                with torch.no_grad():
                    other(x)
        torch.save(saved, __file__.replace("train.py", "saved.pt"))
        """,
        spec,
    )
    assert done.code == 0
    folders = sorted(path for path in done.out.parent.iterdir() if path.name.startswith("run"))
    assert [path.name for path in folders] == ["run", "run.instance-3", "run.instance-5"]
    stored = [value for path in folders for value in probes.open(path)["acts", "fc"].torch()]
    saved = torch.load(done.out.parent / "saved.pt")
    assert len(stored) == len(saved) == 12
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(stored, saved, strict=True))


@pytest.mark.parametrize(
    "optimizers", ["[SGD([*a.parameters(), *b.parameters()], lr=0.1)]", "[SGD(net.parameters(), lr=0.1) for net in (b, a)]"]
)
def test_instances_that_are_trained_together_are_all_captured(probed: Probed, optimizers: str) -> None:
    spec = {"version": 1, "models": {"m": {"class": "Net", "instances": "all"}}, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}}
    done = probed(
        f"""
        teacher, a, b = Net(), Net(), Net()
        saved = {{a.fc: [], b.fc: []}}
        for net in (a, b):
            net.fc.register_forward_hook(lambda module, args, output: saved[module].append(output.detach().clone()))
        optimizers = {optimizers}
        for (x,) in loader(8, 2):
            loss = (teacher(x).detach() + a(x) + b(x)).square().sum()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        torch.save([*saved.values()], __file__.replace("train.py", "saved.pt"))
        """,
        spec,
    )
    assert done.code == 0
    folders = sorted(path for path in done.out.parent.iterdir() if path.name.startswith("run"))
    assert [path.name for path in folders] == ["run", "run.instance-3"]
    for path, saved in zip(folders, torch.load(done.out.parent / "saved.pt"), strict=True):
        assert torch.equal(probes.open(path)["acts", "fc"].torch(), torch.stack(saved))
        assert probes.verify(path).ok
    assert "dropped" not in done.said


THREADS = """
import threading
turn = threading.Barrier(2)
def train(net, optimizer, epochs, data, validation):
    for epoch in range(epochs):
        net.train()
        for (x,) in data:
            turn.wait(20)
            optimizer.zero_grad()
            loss = net(x).square().mean()
            saved[net.fc][1].append(loss.detach().clone())
            turn.wait(20)
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            for (x,) in validation:
                net(x)
saved, threads = {}, []
for epochs, size in (2, 6), (3, 4):
    net = Net()
    saved[net.fc] = [], []
    net.fc.register_forward_hook(lambda module, args, output: saved[module][0].append(output.detach().clone()))
    arguments = net, SGD(net.parameters(), lr=0.1), epochs, loader(size, 2), loader(4, 2)
    threads.append(threading.Thread(target=train, args=arguments))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.save([*saved.values()], __file__.replace("train.py", "saved.pt"))
"""


@pytest.mark.parametrize("instances", ["all", None])
def test_models_that_threads_train_at_the_same_time_count_the_batches_of_their_thread(probed: Probed, instances: str | None) -> None:
    acts = {"hook": "forward", "modules": ["fc"], "when": {"phases": ["train", "eval"]}}
    chosen = {"models": {"m": {"class": "Net", "instances": instances}}} if instances else {}
    done = probed(THREADS, {"version": 1, **chosen, "probes": {"acts": acts, "loss": {"values": ["loop.loss"]}}})
    assert done.code == 0
    saved = {2 if len(each[0]) == 2 * (3 + 2) else 3: each for each in torch.load(done.out.parent / "saved.pt")}
    folders = sorted(path for path in done.out.parent.iterdir() if path.name.startswith("run"))
    assert len(folders) == (2 if instances else 1)
    assert [len(probes.open(path).state) for path in folders] in ([2, 3], [3, 2], [2], [3])
    for path in folders:
        run = probes.open(path)
        epochs = len(run.state)
        train, evaluated = ([*run.sel(phase=phase)["acts", "fc"]] for phase in ("train", "eval"))
        assert [_place(capture) for capture in train] == [(epoch, step, 0) for epoch in range(epochs) for step in range(6 // epochs)]
        assert [_place(capture) for capture in evaluated] == [(epoch, step, 0) for epoch in range(epochs) for step in range(2)]
        assert set(run.state.values()) == {"complete"}
        stored = sorted([*train, *evaluated], key=lambda one: (one.clock.epoch, one.clock.phase == "eval", one.clock.step))
        assert torch.stack([torch.as_tensor(one.value) for one in stored]).equal(torch.stack(saved[epochs][0]))
        (losses,) = run.match("loss")
        assert [_place(capture) for capture in losses] == [_place(capture) for capture in train]
        assert losses.torch().equal(torch.stack(saved[epochs][1]))
    assert "several optimizer steps come on one batch" not in done.said


def _place(capture: Any) -> tuple[int, int, int]:
    return capture.clock.epoch, capture.clock.step, capture.clock.microstep


def test_more_instances_than_can_be_captured_are_named(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.script.model.choice.MOST_CANDIDATES", 1)
    monkeypatch.setattr("probes.script.attach_to_script.MOST_CANDIDATES", 1)
    spec = {"version": 1, "models": {"m": {"class": "Net", "instances": "all"}}, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}}
    done = probed("for net in (Net(), Net()):\n    step(net, SGD(net.parameters(), lr=0.1), torch.ones(2, 3))", spec)
    assert done.code == 0
    assert "1 further model that fits the spec was trained and not captured: `instances: all` captures the first 1 models that" in done.said


INFERENCE = """
first, second = Net(), Net()
with torch.no_grad():
    for (x,) in loader(8, 2):
        first(x), second(x)
"""


def test_several_untrained_models_are_refused_with_the_line_to_write_and_keep_their_directories(probed: Probed) -> None:
    done = probed(INFERENCE)
    assert done.code == 2
    assert "ambiguous-model" in done.said
    assert "models: {model: {class: Net, instance: 1}}" in done.said
    for path in (done.out, done.out.with_name("run.candidate-2")):
        assert len(probes.open(path)["acts", "fc"]) == 4


@pytest.mark.parametrize("instance", [0, 1])
def test_the_line_selects_an_instance(probed: Probed, instance: int) -> None:
    chosen = ("first", "second")[instance]
    spec = {
        "version": 1,
        "models": {"model": {"class": "Net", "instance": instance}},
        "probes": {"acts": {"hook": "forward", "modules": ["fc"], "when": {"phases": ["train", "eval"]}}},
    }
    done = probed(BY_HAND + INFERENCE.replace("with torch", f"by_hand({chosen})\nwith torch", 1), spec)
    assert done.code == 0
    same(done)
    assert alone(done)


def test_an_instance_that_is_never_called_is_reported_with_the_called_ones(probed: Probed) -> None:
    spec = {"version": 1, "models": {"m": {"class": "Net", "instance": 4}}, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}}
    done = probed(INFERENCE, spec)
    assert done.code == 2
    assert "the script called 2 instances of class `Net`; the spec selects instance 4" in done.said


def test_trained_refuses_a_script_that_does_not_train(probed: Probed) -> None:
    spec = {"version": 1, "models": {"m": {"class": "Net", "trained": True}}, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}}
    done = probed("net = Net()\nnet(torch.ones(1, 3))", spec)
    assert done.code == 2
    assert "`trained: true`" in done.said


def test_the_only_model_that_fits_is_captured_although_nobody_trains_it(probed: Probed) -> None:
    done = probed(BY_HAND + "net = Net()\nby_hand(net)\nfor (x,) in loader(8, 2): net(x)")
    assert done.code == 0
    same(done)
    assert models(done) == ["Net first called at 4 calls no optimizer step captured"]


def test_a_model_that_calls_a_part_of_itself_while_it_is_built_is_captured_completely(probed: Probed) -> None:
    spec = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["**"], "types": ["Linear"], "expect": {"matches": 3}}}}
    done = probed(
        """
        class Sized(nn.Module):
            def __init__(self):
                super().__init__()
                self.features = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
                size = self.features(torch.zeros(1, 3)).shape[1]
                self.fc = nn.Linear(size, 2)
                self.head = nn.Linear(2, 1)
            def forward(self, x):
                return self.head(self.fc(self.features(x)))
        net = Sized()
        optimizer = SGD(net.parameters(), lr=0.1)
        for (x,) in loader(8, 2):
            step(net, optimizer, x)
        """,
        spec,
    )
    assert done.code == 0
    assert done.steps() == {0: 4}


def test_a_process_that_is_killed_before_the_choice_leaves_a_run_for_each_candidate(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRELUDE + INFERENCE + "import os; os._exit(9)\n")
    (tmp_path / "p.yaml").write_text("version: 1\nprobes: {acts: {hook: forward, modules: [fc], when: {phases: [eval, train]}}}\n")
    done = programs.run("-m", "probes", "run", "--out", "run", "p.yaml", "train.py", cwd=tmp_path)
    assert done.returncode == 9
    for name in ("run", "run.candidate-2"):
        programs.run("-m", "probes", "recover", name, cwd=tmp_path, check=True)
        assert len(probes.open(tmp_path / name)["acts", "fc"]) == 4


def test_a_model_that_only_a_compiled_function_calls_is_refused_before_step_0_for_that_reason(probed: Probed) -> None:
    spec = {"version": 1, "probes": {"acts": {"hook": "tensor", "tensors": ["fc.weight"], "values": ["grad"]}}}
    done = probed(
        """
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        compiled = torch.compile(lambda x: net(x).sum(), backend="eager")
        for (x,) in loader(8, 2):
            compiled(x).backward()
            optimizer.step()
        """,
        spec,
    )
    assert done.code == 2
    assert "`Net` is trained, but only a compiled function calls it" in done.said
    assert "torch.compile(Net(...))" in done.said
    assert not done.out.exists()


def test_a_directory_that_a_killed_script_left_next_to_the_run_does_not_block_it(tmp_path: Path) -> None:
    (tmp_path / "run.candidate-2").mkdir()
    runs: Any = CandidateRuns.__new__(CandidateRuns)
    runs._opened = 2
    assert runs._beside(tmp_path / "run", "candidate") == tmp_path / "run.candidate-3"
