"""When fused kernels are used: on a GPU that can, for enough work."""

from __future__ import annotations

import pytest
import torch

from teeter.base.seeds import portable
from teeter.kernels import fused
from teeter.kernels.fused import use_fused_kernel


@pytest.mark.gpu
def test_much_work_is_fused_and_little_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    values = torch.ones(3, device="cuda")
    monkeypatch.delenv("TEETER_FUSED", raising=False)
    assert use_fused_kernel(values, 10**12) == (torch.cuda.get_device_capability()[0] in (9, 10))
    assert not use_fused_kernel(values, 10**6)
    with portable():
        assert not use_fused_kernel(values, 10**12)


def test_a_gpu_of_less_memory_a_program_keeps_to_plain_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies_tiles = {}
    for capability in ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)):
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda device, answer=capability: answer
        )
        copies_tiles[capability] = fused._copies_tiles.__wrapped__(torch.device("cuda"))
    assert [capability for capability, copies in copies_tiles.items() if copies] == [
        (9, 0),
        (10, 0),
        (10, 3),
    ]


def test_nothing_is_fused_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEETER_FUSED", "1")
    assert not use_fused_kernel(torch.ones(3), 10**12)
