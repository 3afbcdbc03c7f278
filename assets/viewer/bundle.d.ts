/** The bundle as a function, named by build.mjs; the layout worker runs its source text. */
declare const agvBundle: () => unknown;

declare module "*.css";
