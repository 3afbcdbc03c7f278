"""The story of the first finding that has one, as an animated SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.causes import find_problems
from autogradviz.render.svg.finding_story import no_story, render_story
from autogradviz.scene import build_scene
from autogradviz.scene.audit_and_why_tables import with_causes
from autogradviz.support.escape_surrogates import escape_surrogates

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.analysis import Analysis


def write_story(analysis: Analysis, path: Path) -> None:
    """Write what happened, station by station; readers may prefer it without motion."""
    findings, facts = find_problems(analysis)
    scene = with_causes(build_scene(analysis, findings), analysis, facts, findings)
    text = render_story(scene, scene.stories[0]) if scene.stories else no_story(scene)
    path.write_text(escape_surrogates(text), encoding="utf-8")
