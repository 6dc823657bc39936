import json

from probes.commands.tree import tree
from tests.commands.conftest import Invoke, Written, squeezed


def test_blocks_that_repeat_are_one_row(invoke: Invoke, written: Written) -> None:
    assert squeezed(invoke(tree, "--model", "model:Net").out) == [
        "module class parameters notes",
        '"" Net 298',
        "h ModuleList 288 never called: has no forward",
        "h.{0..2} 3 x Block 96",
        "h.{0..2}.attn 3 x Linear 20",
        "h.{0..2}.mlp 3 x Sequential 76",
        "h.{0..2}.mlp.0 3 x Linear 40",
        "h.{0..2}.mlp.1 3 x ReLU",
        "h.{0..2}.mlp.2 3 x Linear 36",
        "fc1 Linear 10",
        "fc2 Linear 10 same module as `fc1`",
        "",
        "22 modules",
    ]


def test_a_row_states_which_probes_match_and_how_many_of_its_modules(invoke: Invoke, written: Written) -> None:
    written(
        "probe.yaml", 'version: 1\nprobes:\n  late: {hook: forward, modules: ["h.{1..2}.attn"]}\n  all: {hook: forward, modules: ["h.*"]}\n'
    )
    said = invoke(tree, "--model", "model.py:Net", "probe.yaml")
    assert "h.{0..2} 3 x Block 96 all" in squeezed(said.out)
    assert "h.{0..2}.attn 3 x Linear 20 late (2 of 3)" in squeezed(said.out)
    assert said.out.rstrip().endswith("22 modules, 5 probed")


def test_json_is_never_folded(invoke: Invoke, written: Written) -> None:
    rows = json.loads(invoke(tree, "--model", "model:Net", "--json").out)[""]
    assert len(rows) == 22
    assert rows[-1] == {
        "path": "fc2",
        "class": "Linear",
        "parameters": 10,
        "runs": True,
        "aliases": ["fc1"],
        "wrappers": [],
        "probes": [],
    }


def test_several_models_are_shown_one_after_the_other(invoke: Invoke, written: Written) -> None:
    out = invoke(tree, "--model", "model:pair").out
    assert "model g" in out
    assert "model d" in out


def test_a_name_without_a_model_is_refused_with_the_existing_names(invoke: Invoke, written: Written) -> None:
    for name, message in {
        "model": "is not PKG:CALLABLE or FILE.py:CALLABLE",
        "model:Nett": "'model' has no 'Nett'; did you mean `Net`?",
        "model:wants": "cannot be called without arguments (missing a required argument: 'x')",
        "model:number": "is a int, neither a model nor a callable",
        "model:torch.Generator": "gives a Generator, not a model",
        "model:broken": "calling 'model:broken' failed: RuntimeError: no weights here",
        "nowhere:Net": "importing 'nowhere' failed: ModuleNotFoundError",
    }.items():
        said = invoke(tree, "--model", name)
        assert said.code == 2
        assert message in said.err


def test_a_missing_model_file_is_an_error_of_the_environment(invoke: Invoke, written: Written) -> None:
    assert invoke(tree, "--model", "missing.py:Net").code == 3


def test_one_pass_of_a_script_shows_what_modules_return_and_which_did_not_fire(invoke: Invoke, written: Written) -> None:
    train = "net(torch.ones(5, 4)).sum().backward()\ntorch.optim.SGD(net.parameters(), lr=0.1).step()\nprint('not reached')\n"
    written("train.py", f"import torch\nfrom model import Net\nnet = Net()\nnet.h = net.h[:2]\n{train}")
    said = invoke(tree, "--watch", "train.py")
    lines = squeezed(said.out)
    assert lines[0] == "module class parameters returns notes"
    assert "h.{0..1}.mlp.0 2 x Linear 40 float32[5, 8]" in lines
    assert said.err == ""
    written("train.py", "import torch\nfrom model import Net\nnet = Net()\nnet.spare = torch.nn.Linear(2, 2)\nnet(torch.ones(5, 4))\n")
    assert "spare Linear 6 was not called" in squeezed(invoke(tree, "--watch", "train.py").out)


def test_one_module_is_named_in_the_singular(invoke: Invoke) -> None:
    assert invoke(tree, "--model", "torch.nn:ReLU").out.endswith("\n1 module\n")
