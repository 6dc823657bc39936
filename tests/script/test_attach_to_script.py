from tests.script.conftest import Probed

INFERENCE = """
net = Net().eval()
with torch.no_grad():
    for _ in range({calls}):
        net(torch.randn(1, 3))
"""
TRAINING = {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["fc"]}}}
HINT = "50 steps so far, all of phase `eval`, which no probe wants: `when: {phases: [eval]}` does"


def test_a_training_spec_around_inference_is_reported_early_and_once(probed: Probed) -> None:
    done = probed(INFERENCE.format(calls=120), TRAINING)
    assert done.code == 1
    assert done.said.count(HINT) == 1


def test_few_steps_of_another_phase_give_no_advice(probed: Probed) -> None:
    done = probed(
        INFERENCE.format(calls=49) + "net.train()\nnet(torch.randn(1, 3))\nnet.eval()\nwith torch.no_grad():\n    net(torch.randn(1, 3))\n",
        TRAINING,
    )
    assert done.code == 0
    assert HINT not in done.said


def test_a_failing_probe_stops_the_script_if_the_spec_requires_it(probed: Probed) -> None:
    acts = {"hook": "forward", "modules": ["fc"], "dims": ["one"]}
    done = probed(
        """
        net = Net()
        optimizer = SGD(net.parameters(), lr=0.1)
        for i in range(100):
            step(net, optimizer, torch.randn(2, 3))
            print("step", i, "is over", file=sys.stderr)
        """,
        {"version": 1, "on_error": "raise", "probes": {"acts": acts}},
    )
    assert done.code == 1
    assert "`dims` names 1 axes" in done.said
