// @ts-check
/** Functions of `Math` that the build uses under a shorter name. */

export const { max: agvMax, min: agvMin, round: agvRound, abs: agvAbs } = Math;
