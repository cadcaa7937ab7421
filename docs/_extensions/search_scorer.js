// The scores of Sphinx, and two rules of our own: a page whose title has all the searched words moves up, generated
// results and the list of changes move down.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, , , score]) => {
    const query = new URLSearchParams(window.location.search).get("q");
    const [words, named] = [query, title].map((text) => splitQuery(text.toLowerCase()));
    const isNamed = words.every((word) => named.some((name) => name.startsWith(word)));
    return score + (isNamed ? 20 : 0) - (/^(results\/|CHANGELOG)/.test(page) ? 10 : 0);
  },
};
