"""The SVG of a compiled region: its marks in literal colors, a legend, why values are saved."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, short_path
from autogradviz.render.svg import themes_and_primitives as svg
from autogradviz.render.svg.themes_and_primitives import Theme, ThemeName, find_theme, mix
from autogradviz.render.svg.title_group_headers_and_legend import Page, wrap
from autogradviz.scene.label_text_and_width import text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.scene.compiled.tables import RegionScene
    from autogradviz.scene.schema import (
        CompiledDetail,
        SceneCompiledItem,
        SceneCompiledMark,
        SceneCompiledPicture,
        SceneCompiledSlot,
    )

MARGIN: Final = 32.0
MIN_WIDTH: Final = 680.0
MAX_SAVED: Final = 8
"""Number of saved values that are listed with their reason."""


def render_compiled_svg(
    scene: RegionScene, *, detail: CompiledDetail | None = None, theme: ThemeName = "light"
) -> str:
    """Return a compiled region as SVG.

    Args:
        scene: the region.
        detail: one column for each numbered module ("blocks") or for each line ("lines"); by
            default lines, if they fit.
        theme: "light" or "dark".
    """
    region, colors = scene.region, find_theme(theme)
    picture = _choose(scene, detail)
    width = max(picture.width + 2 * MARGIN, MIN_WIDTH)
    page = Page(width, MARGIN, colors)
    page.y = MARGIN + 6
    parts = [svg.text(MARGIN, page.y, region.name, fill=colors.text, size=19, weight=650)]
    page.y += 22
    subtitle = " · ".join(part for part in (region.subtitle, region.planned, *region.notes) if part)
    for line in wrap(subtitle, width - 2 * MARGIN, 11.5):
        parts.append(svg.text(MARGIN, page.y, line, fill=colors.text2, size=11.5))
        page.y += 18
    page.y += 6
    marks = draw_picture(picture, scene.tables.marks, scene.tables.items, colors)
    parts.append(f'<g transform="translate({svg.num(MARGIN)} {svg.num(page.y)})">{marks}</g>')
    page.y += picture.height + 14
    parts.append(_reasons(page, scene))
    size = f'width="{svg.num(width)}" height="{svg.num(page.y)}"'
    view = f'viewBox="0 0 {svg.num(width)} {svg.num(page.y)}"'
    label = svg.escape(f"{region.name}. {region.subtitle}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" aria-label="{label}"'
        f' style="max-width:100%;height:auto" font-family="{svg.FONT}">\n'
        f'<rect width="100%" height="100%" fill="{colors.page}"/>\n'
        + "\n".join(part for part in parts if part)
        + "\n</svg>\n"
    )


def draw_picture(
    picture: SceneCompiledPicture,
    marks: Sequence[SceneCompiledMark],
    items: Sequence[SceneCompiledItem],
    theme: Theme,
) -> str:
    """Return one picture of a region, at the origin."""
    return "\n".join(_draw(mark, items, theme) for mark in marks if mark.picture == picture.index)


def _choose(scene: RegionScene, detail: CompiledDetail | None) -> SceneCompiledPicture:
    pictures = scene.tables.pictures
    return next(
        (p for p in pictures if (p.initial if detail is None else p.detail == detail)),
        pictures[0],
    )


def _draw(mark: SceneCompiledMark, items: Sequence[SceneCompiledItem], theme: Theme) -> str:
    style = mark.style.removesuffix(" after")
    if style.endswith(" before"):
        return ""  # a static picture shows what is saved
    title = svg.escape(_tooltip(items[mark.item])) if mark.item >= 0 else ""
    title = f"<title>{title}</title>" if title else ""
    if mark.shape == "text":
        fill, size, weight = _texts(theme)[style]
        body = svg.text(
            mark.x,
            mark.y,
            mark.text,
            fill=fill,
            size=size,
            weight=weight,
            anchor="middle" if style.startswith("on ") else "start",
        )
        if style == "code":
            body = body.replace(
                "<text ", f'<text font-family="{svg.MONO}" xml:space="preserve" ', 1
            )
    elif mark.shape == "path":
        if style == "curve":
            body = svg.path(mark.text, _paths(theme)["curve"])
        else:
            look = f'{_paths(theme)[style]} stroke-width="{svg.num(mark.width)}"'
            body = svg.path(mark.text, look)
    else:
        radius, shape = _rects(theme)[style]
        body = svg.rect(mark.x, mark.y, mark.width, mark.height, radius=radius, style=shape)
    return f"<g>{title}{body}</g>" if title else body


def _tooltip(item: SceneCompiledItem) -> str:
    return "\n".join(line for line in (item.title, item.subtitle, *item.lines) if line)


@cache
def _rects(theme: Theme) -> dict[str, tuple[float, str]]:
    """Return corner radius and attributes of rectangles by style."""
    page, purple, hue = theme.page, theme.recompute, theme.backward
    dashed = svg.stroke(purple, 1.2, dash="4 2.5", fill=page)
    shaded = svg.stroke(purple, 1.2, dash="4 2.5", fill=mix(purple, 0.1, page))
    return {
        "lane": (6, f'fill="{mix(theme.text, 0.03, page)}"'),
        "block": (8, svg.stroke(mix(theme.text, 0.24, page))),
        "checkpoint": (8, svg.stroke(purple, 1.3, dash="7 4", fill="none")),
        "box forward": (5, svg.stroke(hue, 1, fill=page)),
        "box backward": (5, svg.stroke(hue, 1, fill=mix(hue, theme.tint2, page))),
        "box recomputed": (5, dashed),
        "box recomputed odd": (5, shaded),
        "box partitioner": (5, svg.stroke(theme.text2, 1.2, dash="4 2.5", fill=page)),
        "chip value": (
            3,
            svg.stroke(mix(theme.saved, 0.55, page), fill=mix(theme.saved, theme.tint, page)),
        ),
        "chip input": (
            3,
            svg.stroke(mix(theme.leaf, 0.55, page), fill=mix(theme.leaf, theme.tint, page)),
        ),
        "chip size": (3, svg.stroke(theme.line, fill=theme.surface)),
        "bar value": (1, f'fill="{theme.saved}"'),
        "bar input": (1, f'fill="{theme.leaf}"'),
        "bar size": (1, f'fill="{theme.text2}"'),
        "hook": (3, svg.stroke(theme.text2, 1.2, fill=page)),
    }


@cache
def _paths(theme: Theme) -> dict[str, str]:
    """Return the attributes of paths by style, without their thickness."""
    colors = {"value": theme.saved, "input": theme.leaf, "size": theme.text2}
    styles = {
        f"ribbon {kind}": f'fill="none" stroke="{mix(color, 0.5, theme.page)}"'
        for kind, color in colors.items()
    }
    for kind, color in colors.items():
        faint = mix(color, 0.5, theme.page)
        styles[f"link {kind}"] = f'fill="none" stroke="{faint}" stroke-dasharray="2 2"'
    styles["hook-icon"] = f'fill="none" stroke="{theme.text2}" stroke-linecap="round"'
    purple = theme.recompute
    fill = mix(purple, 0.16, theme.page)
    styles["curve"] = f'fill="{fill}" stroke="{purple}" stroke-width="1.2"'
    return styles


@cache
def _texts(theme: Theme) -> dict[str, tuple[str, float, int]]:
    """Return color, size and weight of texts by style."""
    return {
        "lane-name": (theme.text, 11.5, 650),
        "muted": (theme.text2, 10, 400),
        "strong": (theme.text, 12, 650),
        "recompute-text": (theme.recompute, 10, 600),
        "line": (theme.text, 11, 600),
        "code": (theme.text2, 10, 400),
        "label": (theme.text, 10, 400),
        "curve-label": (theme.recompute, 10, 600),
        "on forward": (theme.text, 11, 400),
        "on backward": (theme.backward, 11, 600),
        "on recomputed": (theme.recompute, 11, 400),
        "on recomputed odd": (theme.recompute, 11, 400),
        "on partitioner": (theme.text2, 11, 400),
        "on note": (theme.text2, 10.5, 400),
        "on note recomputed": (theme.text2, 10.5, 400),
    }


def _reasons(page: Page, scene: RegionScene) -> str:
    """Return the largest saved values, each with the sentence why it is saved."""
    theme = page.theme
    alike: dict[tuple[object, ...], list[SceneCompiledSlot]] = {}
    for slot in scene.tables.slots:
        if slot.kind == "value":
            key = (slot.filename, slot.lineno, slot.description, slot.reason)
            alike.setdefault(key, []).append(slot)
    groups = sorted(alike.values(), key=lambda slots: -sum(slot.nbytes for slot in slots))
    if not groups:
        return ""
    page.y += 8
    title = "Why these values are saved"
    if len(groups) > MAX_SAVED:
        title += f" (the largest {MAX_SAVED} of {len(groups)})"
    parts = [svg.text(page.margin, page.y, title, fill=theme.text, size=11.5, weight=650)]
    page.y += 20
    for slots in groups[:MAX_SAVED]:
        slot = slots[0]
        name = slot.name if len(slots) == 1 else f"{slot.name} and {len(slots) - 1:,} like it"
        parts.append(svg.text(page.margin, page.y, name, fill=theme.text, size=11, weight=600))
        total = format_bytes(sum(each.nbytes for each in slots))
        where = f"{short_path(slot.filename)}:{slot.lineno} · " if slot.lineno else ""
        at = page.margin + text_width(name, 11, bold=True) + 8
        detail = f"{where}{slot.description} · {total}"
        parts.append(svg.text(at, page.y, detail, fill=theme.text2, size=11))
        page.y += 16
        sentences = ". ".join(part for part in (slot.reason, slot.hook) if part)
        for line in wrap(sentences, page.width - 2 * page.margin, 11):
            parts.append(svg.text(page.margin, page.y, line, fill=theme.text2, size=11))
            page.y += 15
        page.y += 6
    page.y += 10
    return "\n".join(parts)
