"""How the page of an explanation looks, and the few lines of script that draw its figures.

Colours come from the page's style, so that figures follow light and dark mode; on paper they are those of light mode.
"""

HEAD = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data: blob:\">\n"
    "<noscript><style>.plot { display: none; }</style></noscript>\n"
)

STYLE = """
html { scroll-behavior: smooth; } body { max-width: 82rem; }
.columns { display: block; } main { min-width: 0; }
nav ol { list-style: none; margin: .5rem 0 1rem; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
nav { font-size: .9rem; } nav a { color: var(--dot); text-decoration: none; }
nav a:hover { text-decoration: underline; } figcaption { margin-top: .3rem; }
section { border-top: 1px solid var(--rule); margin-top: 2rem; scroll-margin-top: .5rem; }
h2 { font-size: 1.3rem; margin: 1.2rem 0 .5rem; } h3 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
p { max-width: 50rem; }
.warning { border-left: 4px solid var(--best); padding: .3rem .8rem; max-width: 50rem; }
.tiles { list-style: none; padding: 0; margin: .8rem 0; display: grid; gap: .7rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 10.5rem), 1fr)); }
.tiles li { border: 1px solid var(--rule); border-radius: .5rem; padding: .6rem .8rem; display: flex;
  flex-direction: column; }
.tiles span, .tiles small { color: var(--soft); font-size: .8rem; }
.tiles strong { font-size: 1.25rem; line-height: 1.4; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem; }
.wide { margin: .7rem 0; } figure { margin: 1rem 0; min-width: 0; } .plot { width: 100%; }
details { margin: .3rem 0; font-size: .9rem; } summary { cursor: pointer; color: var(--soft); }
@media (min-width: 66rem) {
  .columns { display: grid; grid-template-columns: 13rem minmax(0, 1fr); gap: 2rem; }
  nav ol { position: sticky; top: 1rem; flex-direction: column; gap: .45rem; }
  section:first-child { border-top: 0; margin-top: 0; } section:first-child h2 { margin-top: 0; }
}
@media (max-width: 40rem) { th, td { padding: .3rem .45rem; } .tiles { grid-template-columns: 1fr 1fr; }
  .facts tr { display: block; border-bottom: 1px solid var(--rule); padding: .2rem 0; }
  .facts th, .facts td { display: block; border: 0; white-space: normal; padding: .05rem .45rem; } }
@media print {
  body { max-width: none; padding: 0; } nav { display: none; } .columns { display: block; }
  details:not([open]) { display: none; } section { break-inside: auto; } h2, h3 { break-after: avoid; }
  .wide { overflow: visible; } table { font-size: .7rem; } th, td { white-space: normal; padding: .2rem .3rem; }
}
"""

SCRIPT = """
"use strict";
(() => {
  const PAPER = { text: "#000", rule: "#bbb" };
  const screenColours = () => {
    const style = getComputedStyle(document.documentElement);
    return { text: style.getPropertyValue("--text").trim(), rule: style.getPropertyValue("--rule").trim() };
  };
  const clear = "rgba(0,0,0,0)";
  const axis = (given, c) => given && ({
    ...given, gridcolor: c.rule, zerolinecolor: c.rule, linecolor: c.rule, fixedrange: true,
    title: { ...given.title, font: { size: 13 }, standoff: 8 },
  });
  const layout = (given, c) => ({
    margin: { l: 10, r: 14, t: 10, b: 10, autoexpand: true },
    paper_bgcolor: clear, plot_bgcolor: clear, dragmode: false, hovermode: "closest",
    ...given,
    font: { family: "system-ui, sans-serif", size: 13, color: c.text },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: clear },
    xaxis: axis(given.xaxis, c), yaxis: axis(given.yaxis, c),
  });
  const figures = [...document.querySelectorAll("script[data-for]")].map((script) => ({
    place: document.getElementById(script.dataset.for), ...JSON.parse(script.textContent),
  }));
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const draw = (c) => figures.map((f) => Plotly.react(f.place, f.data, layout(f.layout, c), config));
  draw(screenColours());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(screenColours()));
  addEventListener("beforeprint", () => draw(PAPER));
  addEventListener("afterprint", () => draw(screenColours()));
})();
"""
