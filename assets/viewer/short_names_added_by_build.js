// @ts-check
/** Functions of `Math` and `Object` that the build uses under a shorter name. */

export const {
  max: agvMax,
  min: agvMin,
  round: agvRound,
  abs: agvAbs,
  floor: agvFloor,
  ceil: agvCeil,
} = Math;
export const { entries: agvEntries, assign: agvAssign, values: agvValues } = Object;
