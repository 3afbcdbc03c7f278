"""Dask and Ray read an exported run as the guide says."""

import os

import dask.dataframe
import pytest
import ray
import torch

import autogradviz
from autogradviz.events import OpCalled


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the folder of an exported run of two ranks, and the number of ops of each."""
    folder = tmp_path_factory.mktemp("runs")
    variables = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    for rank in range(2):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
        with autogradviz.record(path=f"{folder}/run/"):
            for _ in range(rank + 1):
                torch.ones(3, requires_grad=True).exp().sum().backward()
    for name, value in variables.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    run = autogradviz.load(folder / "run")
    run.export(folder / "run.parquet")
    counts = {rank: len(run.trace(rank).log.of(OpCalled)) for rank in run.ranks}
    assert counts[0] < counts[1]
    return str(folder / "run.parquet"), counts


def test_dask_reads_an_exported_run(exported):
    folder, counts = exported
    events = dask.dataframe.read_parquet(folder, columns=["rank", "kind"])
    ops = events[events["kind"] == "OpCalled"]
    found = ops.groupby("rank", observed=True).size().compute()
    assert {int(rank): count for rank, count in found.items()} == counts


def test_ray_reads_an_exported_run(exported):
    folder, counts = exported
    ray.init(num_cpus=1, include_dashboard=False)
    try:
        ops = ray.data.read_parquet(folder).filter(expr="kind == 'OpCalled'")
        found = ops.groupby("rank").count().take_all()
    finally:
        ray.shutdown()
    assert {int(each["rank"]): each["count()"] for each in found} == counts
