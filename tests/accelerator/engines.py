"""Programs on the test device, once for each engine."""

import os

import pytest

from autogradviz.recorder.native import build
from tests.accelerator.run_on_device import run_on_device


@pytest.fixture(name="run", params=["native", "python"])
def run_program(request, tmp_path):
    """Return a function that runs a program on the device; ``ENGINE`` is an engine's name there."""
    engine = request.param
    if engine == "native":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AUTOGRADVIZ_CACHE", os.environ["AUTOGRADVIZ_TEST_CACHE"])
            if not build.status().usable:
                pytest.skip("the native engine is not built")

    def run(*parts):
        program = "\n".join([f"ENGINE = {engine!r}", *parts])
        return run_on_device(program, tmp_path, native=engine == "native")

    run.engine = engine
    return run
