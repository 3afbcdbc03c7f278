"""The view model of a recording, laid out for renderers."""

from autogradviz.scene.build_scene import build_scene
from autogradviz.scene.schema import Scene

__all__ = ["Scene", "build_scene"]
