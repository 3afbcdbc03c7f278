"""The view model: what renderers draw, laid out."""

from autogradviz.scene.build import build_scene
from autogradviz.scene.schema import Scene

__all__ = ["Scene", "build_scene"]
