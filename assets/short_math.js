// @ts-check
/** Functions of Math under names that are short in the bundle, see build.mjs. */

export const {
  max: mathMax,
  min: mathMin,
  round: mathRound,
  floor: mathFloor,
  ceil: mathCeil,
  abs: mathAbs,
} = Math;
