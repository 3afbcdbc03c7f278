// The order of the results of the search: Sphinx gives a page the score of its best word, so that
// most pages are equal and the alphabet decides. Here each word in a title counts, and guides and
// findings come before lists of everything.
var Scorer = (() => {
  const split = (text) => text.toLowerCase().split(/\W+/);
  const query = new URLSearchParams(window.location.search).get("q") ?? "";
  const words = split(query).filter((word) => word.length > 2);
  const ofPage = (page) => {
    if (/^(guides|findings)\//.test(page)) return 3;
    return /^(events|mechanisms|versions|project\/)/.test(page) ? -6 : 0;
  };
  return {
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
    score: ([page, title, , , score]) => {
      const inTitle = split(title);
      const same = words.filter((word) => inTitle.some((each) => each.startsWith(word)));
      return score + 5 * same.length + ofPage(page);
    },
  };
})();
