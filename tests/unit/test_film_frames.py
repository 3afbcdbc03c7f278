"""The film of a fold: an SVG that plays the step without a script."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.render.svg.animated_memory_fold import FRAMES, REST, Film

SVG = "{http://www.w3.org/2000/svg}"


class Blocks(nn.Module):
    def __init__(self, *, checkpointed):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(3)
        )
        self.checkpointed = checkpointed

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


@pytest.fixture(params=[False, True], ids=["plain", "checkpointed"])
def trace(request):
    model = Blocks(checkpointed=request.param)
    with autogradviz.record(model) as trace:
        model(torch.rand(4, 8)).sum().backward()
    return trace


def held_at(scene, time_ns):
    return sum(
        storage.nbytes
        for storage in scene.counted_storages
        if any(
            start <= time_ns and (end < 0 or end > time_ns)
            for start, end in zip(storage.holds[::2], storage.holds[1::2], strict=True)
        )
    )


def film_of(trace):
    scene = trace._viewer_scene
    return scene, Film(scene, scene.folds[0], scene.ribbons)


def test_counter_of_each_frame_has_the_bytes_of_the_recording(trace):
    scene, film = film_of(trace)
    assert film.times == sorted(film.times)
    assert film.held == [held_at(scene, time) for time in film.times]
    assert max(film.held) == scene.folds[0].peak_nbytes
    assert film.held[-1] == 0
    assert len(film.times) <= FRAMES + 2


def test_ribbons_are_lit_in_the_frames_that_hold_them(trace):
    scene, film = film_of(trace)
    for ribbon in scene.ribbons:
        runs = re.findall(r"(\d+)-(\d+)", film.name_of(ribbon))
        lit = {at for first, last in runs for at in range(int(first), int(last) + 1)}
        storages = [scene.counted_storages[at] for at in ribbon.members]
        for at, time in enumerate(film.times):
            held = any(
                start <= time and (end < 0 or end > time)
                for each in storages
                for start, end in zip(each.holds[::2], each.holds[1::2], strict=True)
            )
            assert (at in lit) == held


def test_film_has_no_script_and_stands_still_for_readers_who_prefer_that(trace):
    text = trace.fold().svg(animate=True)
    root = ET.fromstring(text)
    assert not list(root.iter(f"{SVG}script"))
    style = "".join(each.text for each in root.iter(f"{SVG}style"))
    still, moving = style.split("@media (prefers-reduced-motion:no-preference){")
    assert "animation" not in still
    assert ".now,.gauge,.mark{opacity:0}" in still
    assert moving.count("{") == moving.count("}") - 1
    names = set(re.findall(r"@keyframes ([\w-]+)", style))
    assert set(re.findall(r"animation:([\w-]+)", style)) <= {*names, "12s"}
    _, film = film_of(trace)
    assert text.count('class="now"') == len(film.times) + REST
    assert "at the peak" in text


def test_picture_without_a_film_does_not_move(trace):
    assert "animation" not in trace.fold().svg()
