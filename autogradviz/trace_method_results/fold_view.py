"""``FoldView``: a picture of the tensors that autograd keeps from a forward to its backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, overload

from autogradviz.analysis.formatting import format_bytes
from autogradviz.event_log import write_over_own

if TYPE_CHECKING:
    import os

    from autogradviz.scene.schema import Scene, SceneFold


_NOTHING: Final = "No tensor was saved for backward in this recording."


class FoldView:
    """The fold of one backward; notebooks display it as SVG. ``Trace.fold`` returns it.

    The forward runs from left to right, the step turns at the loss, and backward returns below.
    Each storage that autograd keeps is a ribbon as wide as its bytes.

    Attributes:
        sentence: what fills the memory.

    Example:
        >>> trace.fold()
        <FoldView of 96 B held at the peak>
    """

    def __init__(self, scene: Scene, fold: SceneFold | None) -> None:
        self._scene = scene
        self._fold = fold

    @property
    def sentence(self) -> str:
        """Sentence on the memory that is held at the peak.

        Example:
            >>> trace.fold().sentence
            '96 B held at the peak, all of it by ...'
        """
        return self._fold.sentence if self._fold else _NOTHING

    @overload
    def svg(
        self,
        path: None = None,
        *,
        theme: Literal["light", "dark"] = "light",
        animate: bool = False,
        width_mm: float | None = None,
        overwrite: bool = False,
    ) -> str: ...
    @overload
    def svg(
        self,
        path: str | os.PathLike[str],
        *,
        theme: Literal["light", "dark"] = "light",
        animate: bool = False,
        width_mm: float | None = None,
        overwrite: bool = False,
    ) -> None: ...
    def svg(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        theme: Literal["light", "dark"] = "light",
        animate: bool = False,
        width_mm: float | None = None,
        overwrite: bool = False,
    ) -> str | None:
        """Return the picture as SVG text, or write it to a file.

        Args:
            path: write the text to this file, and return None. An earlier SVG there is replaced.
            theme: colors for light or dark pages.
            animate: play the step: ribbons fill and drain, and a counter has what is held. It
                needs no script, so it plays in a README, and stands still for readers who prefer
                reduced motion.
            width_mm: width of a column of a paper, for example 84, without the title. The text is
                6 pt high or more.
            overwrite: replace any regular file, not only an SVG.

        Raises:
            ValueError: if no tensor was saved for backward, or the width is not positive.
            OutputExistsError: if ``path`` is another non-empty file.

        Example:
            >>> trace.fold().svg("fold.svg")
            >>> trace.fold().svg("film.svg", animate=True)
            >>> trace.fold().svg("figure.svg", width_mm=84)
        """
        from autogradviz.render.svg.saved_memory_fold import render_fold_svg

        if self._fold is None:
            raise ValueError(_NOTHING)
        text = render_fold_svg(
            self._scene, self._fold, theme=theme, animate=animate, width_mm=width_mm
        )
        if path is None:
            return text
        write_over_own(path, text, "<svg", overwrite=overwrite)
        return None

    def _repr_svg_(self) -> str | None:
        from autogradviz.render.svg.themes_and_primitives import fit_into_cell

        return fit_into_cell(self.svg()) if self._fold else None

    def __repr__(self) -> str:
        nbytes = self._fold.peak_nbytes if self._fold else 0
        return f"<FoldView of {format_bytes(nbytes)} held at the peak>"
