// @ts-check
/** Opens the viewer of one rank over the page of the run. */

import { button, h } from "../dom.js";

/** @typedef {import("./types.js").RunScene} RunScene */
/** @typedef {import("./main.js").RunModel} RunModel */

/**
 * Return functions that open the views of one rank over those of the run.
 *
 * @param {HTMLElement} root
 * @param {RunScene} scene
 * @param {RunModel} model
 * @returns {{open: (rank: number) => void, canOpen: (rank: number) => boolean, close: () => void}}
 */
export function makeOwnViews(root, scene, model) {
  let close = () => {};
  let requests = 0;
  const show = (/** @type {number} */ rank) => {
    close();
    const stage = h("div", "agv-run-stage");
    const back = button(`Back to ${scene.title}`, "agv-button", () => close());
    const bar = h("div", "agv-run-own-bar", back, h("h2", "", `Rank ${rank}`));
    const words = h("p", "agv-text", "reading the recording …");
    const pane = h("div", "agv-run-own", bar, words, stage);
    root.append(pane);
    let unmount = () => {};
    close = () => {
      unmount();
      pane.remove();
      close = () => {};
    };
    back.focus();
    return {
      /** @param {ArrayBufferView} payload */
      fill: (payload) => {
        words.remove();
        /** @type {Record<string, any>} */
        const traits = { _payload: payload, height: stage.clientHeight || 600 };
        unmount = autogradviz.default.render({
          model: {
            get: (name) => traits[name],
            set: (name, value) => (traits[name] = value),
            save_changes() {},
            on() {},
            off() {},
          },
          el: stage,
        });
      },
      /** @param {string} text */
      fail: (text) => {
        words.textContent = text;
      },
    };
  };
  return {
    canOpen: (rank) => !model.ranks || model.ranks.has(rank),
    open: (rank) => {
      const pane = show(rank);
      const embedded = model.ranks?.get(rank);
      if (embedded) {
        pane.fill(embedded());
        return;
      }
      requests += 1;
      const number = requests;
      const opened = () => {
        const answer = model.get("_opened");
        if (answer.requests !== number || answer.rank !== rank) return;
        model.off("change:_opened", opened);
        if (answer.error) pane.fail(answer.error);
        else pane.fill(model.get("_payload"));
      };
      model.on("change:_opened", opened);
      model.set("_opening", { rank, requests });
      model.save_changes();
    },
    close: () => close(),
  };
}
