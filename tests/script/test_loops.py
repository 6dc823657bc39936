"""Steps and epochs of loops without calls of probes."""

from __future__ import annotations

import torch

from probes.runner.program_events import sanity_checking
from tests.script.conftest import Probed


def test_a_step_is_an_optimizer_step_and_an_epoch_a_pass_over_the_training_loader(probed: Probed) -> None:
    done = probed("""
        net, data, test = Net(), loader(12, 4, shuffle=True), loader(4, 2)
        optimizer = SGD(net.parameters(), lr=0.1)
        for epoch in range(2):
            net.train()
            for x, in data:
                step(net, optimizer, x)
            net.eval()
            with torch.no_grad():
                for x, in test:
                    net(x)
    """)
    assert done.code == 0
    assert done.steps() == {0: 3, 1: 3}
    assert done.steps("eval") == {0: 2, 1: 2}


def test_accumulation_counts_calls_within_a_step(probed: Probed) -> None:
    done = probed("""
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for i, (x,) in enumerate(loader(12, 2)):
            net(x).sum().backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    """)
    assert done.clocks() == [(0, step, microstep) for step in range(2) for microstep in range(3)]


def test_without_a_loader_all_is_epoch_zero(probed: Probed) -> None:
    done = probed("""
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            step(net, optimizer, torch.randn(2, 3))
    """)
    assert done.steps() == {0: 5}


def test_epoch_steps_cut_a_loop_without_a_loader(probed: Probed) -> None:
    done = probed(
        """
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            step(net, optimizer, torch.randn(2, 3))
        """,
        clock={"epoch_steps": 2},
    )
    assert done.steps() == {0: 2, 1: 2, 2: 1}


def test_two_optimizers_on_one_model_are_one_step(probed: Probed) -> None:
    done = probed("""
        net = Net()
        first, second = SGD(net.fc.parameters(), lr=0.1), SGD(net.head.parameters(), lr=0.1)
        for x, in loader(12, 2):
            net(x).sum().backward()
            first.step()
            second.step()
            net.zero_grad()
    """)
    assert done.steps() == {0: 6}


def test_lbfgs_calls_the_model_several_times_in_a_step(probed: Probed) -> None:
    done = probed("""
        net = Net()
        optimizer = LBFGS(net.parameters(), max_iter=3)
        for x, in loader(4, 2):
            def closure():
                optimizer.zero_grad()
                loss = net(x).square().sum()
                loss.backward()
                return loss
            optimizer.step(closure)
    """)
    assert done.steps() == {0: 2}
    assert max(microstep for _, _, microstep in done.clocks()) > 0


def test_a_step_that_the_scaler_skips_is_a_step(probed: Probed) -> None:
    done = probed("""
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        for i, (x,) in enumerate(loader(8, 2)):
            optimizer.zero_grad()
            loss = net(x).sum() * (float("inf") if i == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """)
    assert done.steps() == {0: 4}


GAN = """
    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)
        def forward(self, z):
            return self.fc(z)

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 1)
        def forward(self, x):
            return self.fc(x)

    d, g = Discriminator(), Generator()
    od, og = SGD(d.parameters(), lr=0.1), SGD(g.parameters(), lr=0.1)
    for x, in loader(12, 2):
        fake = g(torch.randn(2, 3))
        od.zero_grad()
        (d(x).sum() - d(fake.detach()).sum()).backward()
        od.step()
        og.zero_grad()
        d(fake).sum().backward()
        og.step()
"""


def test_two_models_are_bound_at_once_and_the_clock_follows_one(probed: Probed) -> None:
    acts = {"hook": "forward", "modules": ["fc"]}
    spec = {
        "version": 1,
        "models": {"g": "Generator", "d": "Discriminator"},
        "clock": {"model": "g"},
        "probes": {
            "fakes": {**acts, "model": "g"},
            "scores": {**acts, "model": "d"},
            **{f"final-{name}": {"hook": "tensor", "tensors": ["fc.weight"], "stage": "final", "model": name} for name in "gd"},
        },
    }
    done = probed(GAN, spec)
    assert done.code == 0, done.said
    assert done.steps(probe="fakes") == {0: 6}
    assert done.steps(probe="scores") == {0: 6}
    assert len(done.clocks(probe="scores")) == 18
    assert [done.steps(probe=f"final-{name}", target="fc.weight") for name in "gd"] == [{0: 6}, {0: 6}]


def test_calls_of_a_rollout_without_gradients_are_eval_calls(probed: Probed) -> None:
    done = probed(
        """
        policy = Net()
        optimizer = SGD(policy.parameters(), lr=0.1)
        for update in range(3):
            with torch.no_grad():
                for _ in range(4):
                    policy(torch.randn(1, 3))
            for _ in range(2):
                step(policy, optimizer, torch.randn(4, 3))
        """,
        clock={"epoch_steps": 4},
    )
    assert done.steps() == {0: 4, 1: 2}
    assert sum(done.steps("eval").values()) == 12


def test_inference_only_makes_every_call_a_step(probed: Probed) -> None:
    done = probed("""
        net = Net().eval()
        with torch.inference_mode():
            for x, in loader(6, 2):
                net(x)
    """)
    assert done.code == 0, done.said
    assert done.steps("eval") == {0: 3}


def test_a_root_that_is_never_called_is_found_above_the_module_that_is(probed: Probed) -> None:
    text = """
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()
            def training_step(self, x):
                return self.net(x).sum()

        module = Module()
        optimizer = SGD(module.parameters(), lr=0.1)
        for x, in loader(8, 2):
            optimizer.zero_grad()
            module.training_step(x).backward()
            optimizer.step()
    """
    done = probed(text, {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["net.fc"]}}})
    assert done.steps(target="net.fc") == {0: 4}
    assert "bound to Module" in done.said


def test_an_iterable_dataset_in_several_passes(probed: Probed) -> None:
    done = probed("""
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(torch.randn(6, 3))

        net, data = Net(), DataLoader(Stream(), batch_size=2)
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            for x in data:
                step(net, optimizer, x)
    """)
    assert done.steps() == {0: 3, 1: 3}


def test_a_loader_that_is_made_for_every_epoch(probed: Probed) -> None:
    done = probed("""
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            for x, in loader(6, 2):
                step(net, optimizer, x)
    """)
    assert done.steps() == {0: 3, 1: 3}


def test_a_look_at_a_batch_begins_no_epoch(probed: Probed) -> None:
    done = probed("""
        net, data, test = Net(), loader(8, 2), loader(4, 2)
        next(iter(test)), next(iter(data))
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            for i, (x,) in enumerate(data):
                step(net, optimizer, x)
                if i == 1:
                    next(iter(data))
    """)
    assert done.steps() == {0: 4, 1: 4}


def test_a_second_loader_inside_the_loop_ends_no_step(probed: Probed) -> None:
    done = probed("""
        net, labelled, unlabelled = Net(), loader(8, 2), loader(4, 2)
        optimizer = SGD(net.parameters(), lr=0.1)
        others = iter(unlabelled)
        for x, in labelled:
            try:
                u, = next(others)
            except StopIteration:
                others = iter(unlabelled)
                u, = next(others)
            optimizer.zero_grad()
            (net(x).sum() + net(u).sum()).backward()
            optimizer.step()
    """)
    assert done.clocks() == [(0, step, microstep) for step in range(4) for microstep in range(2)]


def test_batches_pulled_ahead_are_counted_right(probed: Probed) -> None:
    done = probed("""
        net, data = Net(), loader(8, 2)
        optimizer = SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            batches = iter(data)
            ahead = next(batches)
            while ahead is not None:
                x, = ahead
                ahead = next(batches, None)
                step(net, optimizer, x)
    """)
    assert done.steps() == {0: 4, 1: 4}


def test_a_cycled_loader_continues_without_pulls(probed: Probed) -> None:
    done = probed("""
        from itertools import cycle, islice
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for x, in islice(cycle(loader(4, 2)), 5):
            step(net, optimizer, x)
    """)
    assert sum(done.steps().values()) == 5


def test_batch_as_the_step_counts_pulls(probed: Probed) -> None:
    done = probed(
        """
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for i, (x,) in enumerate(loader(8, 2)):
            net(x).sum().backward()
            if i % 2:
                optimizer.step()
        """,
        clock={"step": "batch"},
    )
    assert done.steps() == {0: 4}


def test_worker_processes_are_not_captured(probed: Probed) -> None:
    done = probed("""
        class Noisy(torch.utils.data.Dataset):
            def __init__(self):
                self.noise = nn.Sequential(nn.Linear(3, 3))
            def __len__(self):
                return 4
            def __getitem__(self, index):
                with torch.no_grad():
                    return self.noise(torch.ones(3))

        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for x in DataLoader(Noisy(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
            step(net, optimizer, x)
    """)
    assert done.steps() == {0: 2}


def test_a_loss_that_is_a_module_of_the_tree_is_not_a_call_of_the_model(probed: Probed) -> None:
    text = """
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.loss = Net(), nn.MSELoss()
            def training_step(self, x):
                return self.loss(self.net(x), torch.zeros(2, 1))

        module = Module()
        optimizer = SGD(module.parameters(), lr=0.1)
        for x, in loader(8, 2):
            optimizer.zero_grad()
            module.training_step(x).backward()
            optimizer.step()
        module.eval()
        with torch.no_grad():
            for x, in loader(6, 2):
                module.training_step(x)
    """
    acts = {"hook": "forward", "modules": ["net.fc"], "when": {"phases": ["train", "eval"]}}
    done = probed(text, {"version": 1, "probes": {"acts": acts}})
    assert done.code == 0, done.said
    assert done.clocks(target="net.fc") == [(0, step, 0) for step in range(4)]
    assert done.steps("eval", target="net.fc") == {0: 3}


def test_the_sanity_check_of_a_trainer_belongs_to_no_epoch() -> None:
    class Trainer:
        sanity_checking = True

    model = torch.nn.Linear(2, 2)
    assert not sanity_checking(model)
    model._trainer = Trainer()  # type: ignore[assignment]  # where a LightningModule keeps its trainer
    assert sanity_checking(model)


def test_steps_in_an_executor_are_optimizer_steps_where_another_thread_iterates_over_the_loader(probed: Probed) -> None:
    """An asyncio loop that trains in an executor: nothing tells when a batch is used, and a step does not wait for the next one."""
    done = probed("""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        net, data, pool = Net(), loader(12, 4), ThreadPoolExecutor(1)
        optimizer = SGD(net.parameters(), lr=0.1)
        def validate():
            net.eval()
            with torch.no_grad():
                net(torch.ones(1, 3))
            net.train()
        async def train():
            running = asyncio.get_running_loop()
            for epoch in range(2):
                for x, in data:
                    await running.run_in_executor(pool, step, net, optimizer, x)
                await running.run_in_executor(pool, validate)
        asyncio.run(train())
    """)
    assert done.code == 0
    assert done.steps() == {0: 6}
    assert done.steps("eval") == {0: 2}
    assert "on one batch" not in done.said
