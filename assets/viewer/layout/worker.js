// @ts-check
/** Places the graph: immediately if that takes less than a frame, else in a worker thread. */

import { decodePayload, payloadForLayout } from "../payload/decode.js";
import { LayoutCache } from "./cache.js";
import { packPlacement, transferList, unpackPlacement } from "./pack_placement_for_worker.js";

/** @typedef {import("./coordinates.js").Placement} Placement */
/** @typedef {{resolve: (placement: Placement) => void, reject: () => void}} Request */

/** Number of cells that are placed in less than a frame. */
const CELLS_PER_FRAME = 1500;

export class LayoutWorker {
  /** @type {Worker | null} */
  #worker = null;
  #failed = false;
  #lastId = 0;
  /** @type {Map<number, Request>} */
  #requests = new Map();

  /** @param {import("../types.js").Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.cache = new LayoutCache(scene);
  }

  /**
   * @param {Set<number>} open groups
   * @returns {Placement | Promise<Placement>} a promise if it takes longer than a frame
   */
  place(open) {
    if (this.#failed || this.cache.work(open) <= CELLS_PER_FRAME) return this.cache.place(open);
    return this.#post(open).catch(() => {
      this.#failed = true;
      return this.cache.place(open);
    });
  }

  /**
   * @param {Set<number>} open groups
   * @returns {Promise<Placement>} rejected if the host does not allow workers
   */
  #post(open) {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start();
      this.#requests.set(++this.#lastId, { resolve, reject: () => reject() });
      this.#worker.postMessage({ id: this.#lastId, open: [...open] });
    });
  }

  /** @returns {Worker} */
  #start() {
    const worker = startWorker();
    const fail = () => {
      for (const { reject } of this.#requests.values()) reject();
      this.#requests.clear();
    };
    worker.onerror = (event) => {
      event.preventDefault();
      fail();
    };
    worker.onmessage = ({ data: { id, packed } }) => {
      if (!packed) return fail();
      this.#requests.get(id)?.resolve(unpackPlacement(packed));
      this.#requests.delete(id);
    };
    worker.postMessage({ payload: payloadForLayout(this.scene) });
    return worker;
  }

  destroy() {
    this.#worker?.terminate();
    this.#requests.clear();
  }
}

/**
 * Start a worker that runs this bundle from a blob. Not every host can load a worker from a file.
 *
 * @returns {Worker} throws if the host does not allow workers
 */
function startWorker() {
  const script = `autogradviz=(${agvBundle})();autogradviz.serveLayouts(self)`;
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  try {
    return new Worker(url);
  } finally {
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}

/**
 * Answer the requests of a `LayoutWorker`; runs in the worker thread.
 *
 * @param {{onmessage: ((event: MessageEvent) => void) | null, postMessage: Function}} scope
 */
export function serveLayouts(scope) {
  /** @type {Promise<LayoutCache>} */
  let cache;
  scope.onmessage = async ({ data: { payload, id, open } }) => {
    if (payload) {
      cache = decodePayload(payload).then((scene) => new LayoutCache(scene));
      return;
    }
    try {
      const packed = packPlacement((await cache).place(new Set(open)));
      scope.postMessage({ id, packed }, transferList(packed));
    } catch {
      scope.postMessage({ id });
    }
  };
}
