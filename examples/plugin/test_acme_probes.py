import torch
from acme_probes import Above

from probes.signature import Signature
from probes.testing import check_transform


def test_the_contract_holds():
    check_transform(Above())
    check_transform(Above(threshold=1.5))


def test_half_of_the_elements_are_above():
    work = Above(threshold=2).begin(Signature("float32", (4,)))
    assert work(torch.tensor([1.0, 2.0, 3.0, 4.0])) == 0.5
