// @ts-check
/** Lays the graph out: at once where that takes less than a frame, else in a thread of its own. */

import { decodePayload, payloadFor } from "../payload/decode.js";
import { buffersOf, packPlacement, unpackPlacement } from "./transfer.js";
import { Placer } from "./cache.js";

/** @typedef {import("./coordinates.js").Placement} Placement */
/** @typedef {{resolve: (placement: Placement) => void, reject: () => void}} Asked */

/** Cells that are placed in less than a frame. */
const QUICK = 1500;

export class Layouter {
  /** @type {Worker | null} */
  #worker = null;
  #refused = false;
  #tickets = 0;
  /** @type {Map<number, Asked>} */
  #asked = new Map();

  /** @param {import("../types.js").Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.placer = new Placer(scene);
  }

  /**
   * @param {Set<number>} open
   * @returns {Placement | Promise<Placement>} a promise where it takes longer than a frame
   */
  place(open) {
    if (this.#refused || this.placer.work(open) <= QUICK) return this.placer.place(open);
    return this.#ask(open).catch(() => {
      this.#refused = true;
      return this.placer.place(open);
    });
  }

  /**
   * @param {Set<number>} open
   * @returns {Promise<Placement>} rejected where the host refuses such threads
   */
  #ask(open) {
    return new Promise((resolve, reject) => {
      this.#worker ??= this.#start();
      this.#asked.set(++this.#tickets, { resolve, reject: () => reject() });
      this.#worker.postMessage({ ticket: this.#tickets, open: [...open] });
    });
  }

  /** @returns {Worker} */
  #start() {
    const worker = startWorker();
    const fail = () => {
      for (const { reject } of this.#asked.values()) reject();
      this.#asked.clear();
    };
    worker.onerror = (event) => {
      event.preventDefault();
      fail();
    };
    worker.onmessage = ({ data: { ticket, packed } }) => {
      if (!packed) return fail();
      this.#asked.get(ticket)?.resolve(unpackPlacement(packed));
      this.#asked.delete(ticket);
    };
    worker.postMessage({ payload: payloadFor(this.scene) });
    return worker;
  }

  destroy() {
    this.#worker?.terminate();
    this.#asked.clear();
  }
}

/**
 * A thread that runs this very script: a file of its own could not be loaded everywhere.
 *
 * @returns {Worker} throws where there can be none
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
 * The other side: answers what a layouter asks.
 *
 * @param {{onmessage: ((event: MessageEvent) => void) | null, postMessage: Function}} scope
 */
export function serveLayouts(scope) {
  /** @type {Promise<Placer>} */
  let placer;
  scope.onmessage = async ({ data: { payload, ticket, open } }) => {
    if (payload) {
      placer = decodePayload(payload).then((scene) => new Placer(scene));
      return;
    }
    try {
      const packed = packPlacement((await placer).place(new Set(open)));
      scope.postMessage({ ticket, packed }, buffersOf(packed));
    } catch {
      scope.postMessage({ ticket });
    }
  };
}
