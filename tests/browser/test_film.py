"""The film: the replay of a step in the graph, the fold and the source together."""

from __future__ import annotations

import recordings
from viewer_page import Stage

SIZE = {"width": 1440, "height": 900}


def held_at(scene, time_ns):
    return sum(
        storage.nbytes
        for storage in scene.counted_storages
        if any(
            start <= time_ns and (end < 0 or end > time_ns)
            for start, end in zip(storage.holds[::2], storage.holds[1::2], strict=True)
        )
    )


def spelled(nbytes):
    return f"{nbytes} B" if nbytes < 1000 else f"{nbytes / 1000:.1f} kB"


def test_held_bytes_and_lines_follow_the_time(open_page, picture):
    scene = recordings.plain()
    stage = Stage(open_page(viewport=SIZE), scene, view="fold")
    [fold] = scene.folds
    for time_ns in (fold.turn_ns, (fold.turn_ns + fold.end_ns) // 2, fold.end_ns + 1):
        stage.page.evaluate("(time) => change('state', `view=fold&time=${time}`)", time_ns)
        stage.settle()
        text = stage.page.text_content(".agv-scrubber-text")
        assert text.startswith(f"{spelled(held_at(scene, time_ns))} held")
        rows = stage.page.locator(".agv-heat-row:is(button) .agv-heat-bytes").all_text_contents()
        lines = sorted({(s.filename, s.lineno) for s in scene.counted_storages if s.lineno})
        expected = []
        for filename, lineno in lines:
            own = [
                s for s in scene.counted_storages if (s.filename, s.lineno) == (filename, lineno)
            ]
            expected.append(
                spelled(
                    sum(
                        s.nbytes
                        for s in own
                        if any(
                            start <= time_ns and (end < 0 or end > time_ns)
                            for start, end in zip(s.holds[::2], s.holds[1::2], strict=True)
                        )
                    )
                )
            )
        marked = {"culprit", "victim"}  # lines of findings that keep nothing
        assert sorted(row for row in rows if row not in marked) == sorted(expected)
    stage.page.screenshot(path=picture("film-fold"))


def test_the_line_at_work_is_marked(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(viewport=SIZE), scene, view="fold")
    node = next(each for each in scene.nodes if each.saved_nbytes and each.lineno)
    time_ns = node.runs_ns[0]
    stage.page.evaluate("(time) => change('state', `view=fold&time=${time}`)", time_ns)
    stage.settle()
    marked = stage.page.locator(".agv-heat-now .agv-heat-number").all_text_contents()
    assert marked == [str(node.lineno)]


def test_a_step_of_the_replay_goes_to_the_next_module(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(viewport=SIZE), scene, view="fold")
    times = []
    for unit in ("node", "module"):
        stage.page.select_option(".agv-scrubber-menu >> nth=1", unit)
        stage.page.click("[aria-label='To the start']")
        now = []
        for _ in range(4):
            stage.page.click("[aria-label='One step on']")
            now.append(int(stage.page.get_attribute(".agv-scrubber-bar", "aria-valuenow")))
        assert now == sorted(now)
        times.append(now[-1])
    assert times[1] >= times[0]


def test_readers_who_prefer_reduced_motion_see_single_pictures(open_page):
    page = open_page(viewport=SIZE, reduced_motion="reduce")
    Stage(page, recordings.plain(), view="fold")
    page.select_option(".agv-scrubber-menu >> nth=0", "4×")
    seen = page.evaluate(
        """async () => {
          const bar = document.querySelector(".agv-scrubber-bar");
          const seen = new Set();
          document.querySelector("[aria-label=Play]").click();
          while (document.querySelector("[aria-label=Pause]")) {
            seen.add(bar.getAttribute("aria-valuenow"));
            await new Promise(requestAnimationFrame);
          }
          return seen.size;
        }"""
    )
    assert 2 <= seen <= 12


PIXELS = """(() => {
  const canvas = document.querySelector(".agv-fold canvas");
  return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
})()"""
# A few pixels of curves are smoothed differently where they are clipped.
DIFFERING = f"""(() => {{
  const now = {PIXELS};
  let count = 0;
  for (let at = 0; at < now.length; at++) count += Math.abs(now[at] - kept[at]) > 8;
  return count;
}})()"""


def test_ribbons_of_a_replay_look_as_if_painted_at_once(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(viewport=SIZE), scene, view="fold")
    [fold] = scene.folds
    length = (fold.turn_ns + fold.end_ns) // 2 - fold.start_ns

    def go(time_ns):
        stage.page.evaluate("(time) => change('state', `view=fold&time=${time}`)", time_ns)
        stage.settle()

    for at in range(21):
        go(fold.start_ns + at * length // 20)
    stage.page.evaluate(f"window.kept = {PIXELS}; 0")
    go(fold.start_ns)
    stage.page.wait_for_function(f"{DIFFERING} > 30_000")
    go(fold.start_ns + length)
    stage.resize({"width": 1300, "height": 900})  # everything is painted again
    stage.resize(SIZE)
    stage.page.wait_for_function(f"{DIFFERING} < 3_000")


def test_details_follow_the_replay_and_return_to_the_selection(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(viewport=SIZE), scene)
    node = next(each for each in scene.nodes if each.runs_ns)
    title = f"#{node.node_id}"
    follows = "(text) => document.querySelector('.agv-details').textContent.includes(text)"
    assert not stage.page.evaluate(follows, title)
    stage.page.evaluate("(time) => change('state', `view=graph&time=${time}`)", node.runs_ns[0])
    stage.page.wait_for_function(follows, arg=title)
    stage.page.click("[aria-label='To the end']")
    stage.page.wait_for_function(f"(text) => !({follows})(text)", arg=title)
