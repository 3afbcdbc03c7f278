"""Bad arguments are refused in one line, before a package is imported."""

import pytest

from autogradviz.integrations.experiment_trackers import (
    log_to_mlflow,
    log_to_tensorboard,
    log_to_wandb,
)


def to_tensorboard(trace):
    log_to_tensorboard(trace, writer=None)


@pytest.mark.parametrize("log", [log_to_mlflow, log_to_wandb, to_tensorboard])
def test_something_else_than_a_trace_is_refused(log):
    with pytest.raises(TypeError, match=r"log_to_\w+\(\) takes a Trace, as record\(\) gives it"):
        log("step.agv")
