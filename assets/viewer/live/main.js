// @ts-check
/** The live page of `autogradviz watch`, and the widget of `trace.live()`. */

import "../style/base.css";
import "./live.css";
import { button, h } from "../dom.js";
import { LiveView } from "./live_view.js";

const POLL_MS = 1000;

/**
 * Mount the widget; Python sends the state through the widget's channel.
 *
 * @param {{model: import("../sync_selection_with_python.js").HostModel, el: HTMLElement}} host
 * @returns {() => void} removes the view
 */
function render({ model, el }) {
  const view = new LiveView(el, (step) => {
    model.set("_wanted", { step, count: (model.get("_wanted")?.count ?? 0) + 1 });
    model.save_changes();
    const text = `Step ${step} opens as soon as the kernel is idle.`;
    view.opened.replaceChildren(h("p", "agv-muted", text));
  });
  const update = () => {
    const changes = model.get("_changes");
    if (changes && "version" in changes) view.update(changes);
  };
  const show = () => {
    const { step, page } = model.get("_opened") ?? {};
    if (page === undefined) return;
    const close = button("Close", "agv-live-open", () => view.opened.replaceChildren());
    const attrs = { sandbox: "allow-scripts allow-downloads", srcdoc: page, title: `Step ${step}` };
    view.opened.replaceChildren(
      h("div", "agv-live-head", h("h3", "agv-live-name", `Step ${step}`), close),
      h("iframe", { attrs }),
    );
  };
  model.on("change:_changes", update);
  model.on("change:_opened", show);
  update();
  return () => {
    model.off("change:_changes", update);
    model.off("change:_opened", show);
    view.destroy();
  };
}

/**
 * Mount the page, which asks its server for changes.
 *
 * @param {HTMLElement} host
 */
function followServer(host) {
  const view = new LiveView(host, (step) => window.open(`step/${step}`, "_blank", "noopener"));
  const poll = async () => {
    const { generation, version } = view.state.newest ?? { generation: 0, version: 0 };
    try {
      const answer = await fetch(`state?generation=${generation}&version=${version}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      view.update(await answer.json());
    } catch (error) {
      view.fail(
        `autogradviz watch does not answer (${error instanceof Error ? error.message : error})`,
      );
    }
    setTimeout(poll, POLL_MS);
  };
  poll();
}

export default { render, followServer };
