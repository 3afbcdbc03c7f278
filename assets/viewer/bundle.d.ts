/** The bundle as a function, named by build.mjs; the layout worker runs its source text. */
declare const agvBundle: () => unknown;

declare module "*.css";

/** The viewer of one recording, whose script precedes that of runs. */
declare const autogradviz: {
  default: {
    render: (host: {
      model: import("./sync_selection_with_python.js").HostModel;
      el: HTMLElement;
    }) => () => void;
  };
};
