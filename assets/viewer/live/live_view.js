// @ts-check
/** The live view: state of the recording, a chart for each measure, findings so far. */

import { hostTheme, watchTheme } from "../canvas/theme.js";
import { button, claim, h, listen } from "../dom.js";
import { formatBytes, dotted } from "../scene/format_numbers_and_names.js";
import { drawChart, placeAt } from "./line_chart_over_steps.js";
import { State } from "./received_steps.js";
import { measuresOf } from "./measures_to_chart.js";

/** @typedef {import("./received_steps.js").Changes} Changes */

export class LiveView {
  /**
   * @param {HTMLElement} host
   * @param {(step: number) => void} open shows one step in the viewer
   */
  constructor(host, open) {
    this.open = open;
    this.state = new State();
    this.chosen = -1;
    this.status = h("div", { class: "agv-live-status", attrs: { role: "status" } });
    this.charts = h("div", {
      class: "agv-live-charts",
      attrs: {
        tabindex: 0,
        role: "slider",
        "aria-label": "Step",
        "aria-valuemin": 0,
        "aria-valuemax": 0,
        "aria-valuenow": 0,
      },
    });
    this.footer = h("div", "agv-live-footer");
    this.findings = h("section", "agv-live-findings");
    this.opened = h("div", "agv-live-opened");
    this.root = h(
      "div",
      { class: "agv agv-live", attrs: { "data-lm-suppress-shortcuts": "true" } },
      this.status,
      this.charts,
      this.footer,
      this.findings,
      this.opened,
    );
    host.append(this.root);
    listen(this.charts, "pointermove", (event) => this.choose(this.placeOf(event)));
    listen(this.charts, "pointerleave", () => this.choose(-1));
    listen(this.charts, "click", (event) => this.openPlace(this.placeOf(event)));
    listen(this.charts, "keydown", (event) => this.press(event));
    this.resizes = new ResizeObserver(() => this.drawCharts());
    this.resizes.observe(this.charts);
    this.stopTheme = watchTheme(() => this.showTheme());
    this.timer = setInterval(() => this.drawStatus(), 1000);
    this.failure = "";
    this.showTheme();
  }

  showTheme() {
    this.root.dataset.theme = hostTheme();
  }

  /** @param {Changes} changes */
  update(changes) {
    this.failure = "";
    this.state.add(changes);
    this.draw();
  }

  /** @param {string} text why no changes arrive */
  fail(text) {
    this.failure = text;
    this.drawStatus();
  }

  destroy() {
    clearInterval(this.timer);
    this.resizes.disconnect();
    this.stopTheme();
    this.root.remove();
  }

  draw() {
    this.drawStatus();
    this.drawCharts();
    this.drawFindings();
  }

  /** @param {PointerEvent | MouseEvent} event */
  placeOf(event) {
    const { left, width } = this.charts.getBoundingClientRect();
    return placeAt(event.clientX - left, this.state.steps.length, width);
  }

  /** @param {number} place */
  choose(place) {
    if (place === this.chosen) return;
    this.chosen = place;
    this.drawCharts();
  }

  /** @param {number} place */
  openPlace(place) {
    const step = this.state.steps[place];
    if (step) this.open(step.step);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const last = this.state.steps.length - 1;
    const at = this.chosen < 0 ? last : this.chosen;
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last };
    if (event.key === "Enter") this.openPlace(at);
    else if (event.key in moves) this.choose(Math.max(0, Math.min(last, moves[event.key])));
    else return;
    claim(event);
  }

  drawStatus() {
    const { newest, steps } = this.state;
    const [kind, text] = this.describe();
    const started = newest?.startedMs ? new Date(newest.startedMs).toLocaleString() : "";
    const facts = [
      newest?.model ?? "",
      newest?.torch ? `torch ${newest.torch}` : "",
      started && `since ${started}`,
      steps.length ? `${steps.length.toLocaleString("en")} steps` : "",
    ];
    const notes = [newest?.note ?? ""];
    if (newest?.missing)
      notes.push(`${newest.missing.toLocaleString("en")} steps could not be read.`);
    this.status.replaceChildren(
      h("h2", "", newest?.name || newest?.model || "autogradviz"),
      h("span", `agv-live-kind agv-live-${kind}`, text),
      h("span", "agv-muted", dotted(facts)),
      ...notes.filter(Boolean).map((note) => h("p", "agv-muted", note)),
    );
  }

  /** @returns {[string, string]} class and text of the state */
  describe() {
    const { newest, steps, arrivedMs } = this.state;
    if (this.failure) return ["failed", this.failure];
    if (!newest) return ["waiting", "connecting"];
    if (newest.error) return ["failed", newest.error];
    if (!newest.exists) {
      const reason = steps.length ? "was removed; these are its last steps" : "does not exist yet";
      return ["waiting", `waiting: the file ${reason}`];
    }
    if (newest.unread) return ["waiting", `reading, ${formatBytes(newest.unread)} left`];
    if (newest.ended) return ["ended", "the recording has ended"];
    if (!steps.length) return ["waiting", "recording; no step has ended yet"];
    const quiet = Math.round((Date.now() - arrivedMs) / 1000);
    return ["running", quiet < 10 ? "recording" : `no new step for ${quiet} s`];
  }

  drawCharts() {
    const { steps } = this.state;
    this.charts.hidden = !steps.length;
    if (!steps.length) {
      this.footer.replaceChildren();
      return;
    }
    const width = this.charts.clientWidth;
    const place = this.chosen < 0 ? steps.length - 1 : Math.min(this.chosen, steps.length - 1);
    const step = steps[place];
    const panels = measuresOf(this.state, formatBytes).map((measure) =>
      drawChart(measure, steps, this.chosen < 0 ? -1 : place, width),
    );
    this.charts.replaceChildren(...panels);
    const name = step.unfinished ? `step ${step.step}, which did not end` : `step ${step.step}`;
    const attributes = {
      "aria-valuemin": steps[0].step,
      "aria-valuemax": steps[steps.length - 1].step,
      "aria-valuenow": step.step,
      "aria-valuetext": `${name}. ${panels.map((panel) => panel.textContent).join("; ")}`,
    };
    for (const [key, value] of Object.entries(attributes)) {
      this.charts.setAttribute(key, String(value));
    }
    const ops = step.ops === null ? "" : ` · ${step.ops.toLocaleString("en")} ops`;
    this.footer.replaceChildren(
      h("span", "agv-muted", `step ${steps[0].step}`),
      h(
        "span",
        "agv-live-step",
        h("b", "", name),
        `${ops} `,
        button(`Open step ${step.step}`, "agv-live-open", () => this.open(step.step)),
      ),
      h("span", "agv-muted", `step ${steps[steps.length - 1].step}`),
    );
  }

  drawFindings() {
    const { newest, steps, findings } = this.state;
    const waiting = newest?.unanalyzed ?? 0;
    const checked = steps.length - waiting;
    const aside = waiting
      ? `${checked.toLocaleString("en")} of ${steps.length.toLocaleString("en")} steps checked, the newest first`
      : `${steps.length.toLocaleString("en")} steps checked, each by itself`;
    const list = [...findings.values()].map((found) => this.findingRow(found));
    const none = checked ? "None in the steps that were checked." : "No step was checked yet.";
    this.findings.replaceChildren(
      h(
        "div",
        "agv-live-head",
        h("h3", "agv-live-name", "Findings so far"),
        h("span", "agv-muted", steps.length ? aside : ""),
      ),
      ...(list.length ? list : [h("p", "agv-muted", steps.length ? none : "")]),
    );
  }

  /** @param {import("./received_steps.js").Finding} found */
  findingRow(found) {
    const count = found.count > 1 ? `, and ${(found.count - 1).toLocaleString("en")} more` : "";
    return h(
      "div",
      "agv-live-finding",
      h("b", "", found.title),
      h("div", {}, h("code", "", found.line), "  ", h("code", "", found.text)),
      h(
        "div",
        {},
        button(`Open step ${found.firstStep}`, "agv-live-open", () => this.open(found.firstStep)),
        h("span", "agv-muted", ` ${count} · ${found.slug}`),
      ),
    );
  }
}
