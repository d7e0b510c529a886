"""The labelling page in a cell of JupyterLab: shown in a frame, and answered there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from campaigns.ports import ReservedPort
from server.browsers import MARKS, PATIENCE, sync_api
from server.servers import make_text_campaign
from teeter.campaigns.campaign import Campaign

pytest.importorskip("jupyterlab")
pytest.importorskip("ipykernel")
pytestmark = [*MARKS, pytest.mark.slow]

TOKEN = "a token of the test"
IDLE_LOOKS = 5
"""After so many looks at an idle kernel, a second apart, the request to run the cell was lost."""

CELL = "import teeter\nteeter.Campaign.open('texts.teeter').show(height=640)"


@contextmanager
def running_jupyter(folder: Path) -> Iterator[str]:
    """Yield the address of a JupyterLab in a folder."""
    port = ReservedPort()

    options = [
        f"--ServerApp.port={port.number}",
        f"--IdentityProvider.token={TOKEN}",
        "--no-browser",
    ]
    options += ["--allow-root", "--ServerApp.ip=127.0.0.1", "--LabApp.news_url="]
    # Nothing is built or installed, so no message about it covers the notebook.
    options += ["--core-mode", "--LabApp.extension_manager=readonly"]

    environment = {**os.environ, "HOME": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "run")}

    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    address = f"http://127.0.0.1:{port.number}"
    try:
        deadline = time.monotonic() + PATIENCE / 1000
        while not is_answering(f"{address}/api"):
            assert process.poll() is None, "JupyterLab ended"
            assert time.monotonic() < deadline, "JupyterLab did not start"
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def is_answering(address: str) -> bool:
    try:
        return httpx2.get(address).status_code == 200
    except httpx2.HTTPError:
        return False


def write_notebook(path: Path) -> None:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "source": CELL}
    cell["execution_count"] = None
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))


def is_kernel_idle(address: str) -> bool:
    """Return whether JupyterLab's kernel runs, waits for code, and a page is connected to it."""
    headers = {"authorization": f"token {TOKEN}"}
    kernels = httpx2.get(f"{address}/api/kernels", headers=headers, timeout=PATIENCE / 1000).json()
    return any(kernel["execution_state"] == "idle" and kernel["connections"] for kernel in kernels)


def run_first_cell(page: Any, address: str) -> None:
    """Run the cell until it has shown something.

    JupyterLab may lose a request that comes before its session is ready. Then the cell waits for
    ever, while the kernel waits for code.
    """
    cell = page.locator(".jp-Notebook .jp-CodeCell").first
    dialog = page.locator(".jp-Dialog-content")
    messages = []
    deadline = time.monotonic() + PATIENCE / 1000
    idle_looks = IDLE_LOOKS
    while page.locator(".jp-OutputArea iframe").count() == 0:
        output = page.locator(".jp-OutputArea").all_inner_texts()
        assert time.monotonic() < deadline, f"no page but {output}; JupyterLab said: {messages}"
        page.wait_for_timeout(1000)

        # JupyterLab's own messages, such as one that a build is recommended, cover the notebook.
        if dialog.count():
            messages.append(dialog.first.inner_text())
            page.keyboard.press("Escape")
            continue

        idle_looks = idle_looks + 1 if is_kernel_idle(address) else 0
        if idle_looks >= IDLE_LOOKS:
            with suppress(sync_api.TimeoutError):  # a message may have come in between
                cell.locator(".cm-content").click(timeout=10_000)
                page.keyboard.press("Control+Enter")
                idle_looks = 0


def test_a_cell_shows_the_page_and_an_answer_in_it_is_saved(browser: Any, tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 20)
    write_notebook(tmp_path / "label.ipynb")

    with running_jupyter(tmp_path) as address:
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/lab/tree/label.ipynb?token={TOKEN}")
        # A cell that runs before the kernel is connected does nothing.
        idle = page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        sync_api.expect(idle).to_be_visible()
        run_first_cell(page, address)

        frame = page.frame_locator(".jp-OutputArea iframe")
        sync_api.expect(frame.locator("#stage .words")).to_be_visible()
        frame.locator("#choices button").first.click()
        sync_api.expect(frame.locator("#saved")).to_have_text("All saved")
        page.screenshot(path=os.environ.get("TEETER_SCREENSHOT", str(tmp_path / "page.png")))
        page.close()

    campaign = Campaign.open(file)
    assert campaign.status().labelled == 1
    campaign.database.close()
