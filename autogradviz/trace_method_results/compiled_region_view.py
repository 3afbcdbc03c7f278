"""``CompiledRegionView``: a region that ``torch.compile`` made as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from autogradviz.errors import UnknownRegionError
from autogradviz.event_log import write_over_own
from autogradviz.render.svg.compiled_region import render_compiled_svg
from autogradviz.scene.compiled.tables import build_region_scene, regions_named

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from autogradviz.analysis.compiled_region_types import CompiledRegion


class CompiledRegionView:
    """A picture of a compiled region; notebooks display it as SVG.

    The forward is above, the backward below; columns are the user's lines. Saved values lead from
    the forward to the backward ops that need them, as ribbons as thick as their bytes.
    ``Trace.compiled_graph`` returns it.

    Example:
        >>> step = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
        >>> with autogradviz.record() as compiled:
        ...     step(torch.rand(3, requires_grad=True)).backward()
        >>> compiled.compiled_graph()
        <CompiledRegionView of ...: 2 forward ops, ... backward ops>
    """

    def __init__(self, region: CompiledRegion) -> None:
        self._region = region
        self._scene = build_region_scene(region)

    @overload
    def svg(
        self,
        path: None = None,
        *,
        detail: Literal["blocks", "lines"] | None = None,
        theme: Literal["light", "dark"] = "light",
        overwrite: bool = False,
    ) -> str: ...
    @overload
    def svg(
        self,
        path: str | os.PathLike[str],
        *,
        detail: Literal["blocks", "lines"] | None = None,
        theme: Literal["light", "dark"] = "light",
        overwrite: bool = False,
    ) -> None: ...
    def svg(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        detail: Literal["blocks", "lines"] | None = None,
        theme: Literal["light", "dark"] = "light",
        overwrite: bool = False,
    ) -> str | None:
        """Return the picture as SVG text, or write it to a file.

        Args:
            path: write the text to this file, and return None. An earlier SVG there is replaced.
            detail: one column for each numbered module ("blocks") or for each line of the
                program ("lines"). By default lines, if the picture stays readable.
            theme: colors for light or dark pages.
            overwrite: replace any regular file, not only an SVG.

        Raises:
            ValueError: if there is no such detail.
            OutputExistsError: if ``path`` is another non-empty file.

        Example:
            >>> step = torch.compile(lambda x: x.cos().sum(), backend="aot_eager")
            >>> with autogradviz.record() as compiled:
            ...     step(torch.rand(3, requires_grad=True)).backward()
            >>> compiled.compiled_graph().svg("region.svg")
        """
        if detail not in {None, "blocks", "lines"}:
            message = f'detail is "blocks" or "lines", not {detail!r}'
            raise ValueError(message)
        text = render_compiled_svg(self._scene, detail=detail, theme=theme)
        if path is None:
            return text
        write_over_own(path, text, "<svg", overwrite=overwrite)
        return None

    def _repr_svg_(self) -> str:
        from autogradviz.render.svg.themes_and_primitives import fit_into_cell

        return fit_into_cell(self.svg())

    def __repr__(self) -> str:
        region = self._region
        return (
            f"<CompiledRegionView of {region.name}: {len(region.forward_ops):,} forward ops, "
            f"{len(region.backward_ops):,} backward ops>"
        )


def choose_region(regions: Sequence[CompiledRegion], region: str | int | None) -> CompiledRegion:
    """Return one of several regions, by name, by position, or the one that saves most.

    Raises:
        UnknownRegionError: if there is no such region, or several have this name.
    """
    if not regions:
        message = "this trace has no compiled regions; torch.compile makes them"
        raise UnknownRegionError(message)
    if region is None:
        return max(regions, key=lambda each: each.saved_nbytes)
    if isinstance(region, int):
        found = list(regions[region : region + 1]) if region >= 0 else []
    else:
        found = regions_named(regions, region)
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(each.name for each in regions))
        problem = "several compiled regions are" if found else "no compiled region is"
        message = f"{problem} {region!r}; there are: {names}"
        raise UnknownRegionError(message)
    return found[0]
