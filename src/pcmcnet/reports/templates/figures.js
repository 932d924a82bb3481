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
  const figures = [...document.querySelectorAll(".plot + script")].map((script) => ({
    place: script.previousElementSibling, ...JSON.parse(script.textContent),
  }));
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const draw = (c) => figures.map((f) => Plotly.react(f.place, f.data, layout(f.layout, c), config));
  draw(screenColours());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(screenColours()));
  addEventListener("beforeprint", () => draw(PAPER));
  addEventListener("afterprint", () => draw(screenColours()));
})();
