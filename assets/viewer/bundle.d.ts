/** The whole bundle as a function: its text is what a thread of its own runs. */
declare const agvBundle: () => unknown;
