"use strict";
(async () => {
  // A link to a folded section opens it.
  const reveal = () => document.getElementById(location.hash.slice(1))?.querySelector("details.section")
    ?.setAttribute("open", "");
  addEventListener("hashchange", reveal);
  reveal();

  // Unpack plotly: digits of base 85, five for four bytes, and then zlib. An old browser shows the numbers instead.
  const unpack = (text) => {
    const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%:()*+-;,=>?@^_`{|}~";
    const value = Object.fromEntries([...digits].map((digit, k) => [digit, k]));
    const view = new DataView(new ArrayBuffer(4 * Math.ceil(text.length / 5)));
    for (let at = 0; at < text.length; at += 5) {
      let number = 0;
      for (let k = 0; k < 5; k += 1) number = 85 * number + (at + k < text.length ? value[text[at + k]] : 84);
      view.setUint32((4 * at) / 5, number);
    }
    const bytes = new Uint8Array(view.buffer, 0, Math.floor((4 * text.length) / 5));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  try {
    const script = document.createElement("script");
    script.textContent = await unpack(document.getElementById("plotly").textContent);
    document.head.append(script);
  } catch {
    document.querySelectorAll(".plot").forEach((place) => {
      const note = Object.assign(document.createElement("p"), { className: "note" });
      note.textContent = "This browser cannot draw the figure. Its values are in the table below.";
      place.replaceWith(note);
    });
    return;
  }
  const PAPER = { text: "#000", rule: "#bbb", back: "#fff" };
  const screenColours = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    return { text: colour("--text"), rule: colour("--rule"), back: colour("--back") };
  };
  const clear = "rgba(0,0,0,0)";
  const axis = (options, c) => options && ({
    ...options, gridcolor: c.rule, zerolinecolor: c.rule, linecolor: c.rule, fixedrange: true,
    title: { ...options.title, font: { size: 13 }, standoff: 8 },
  });
  const layout = (options, c) => ({
    margin: { l: 10, r: 14, t: 10, b: 10, autoexpand: true },
    paper_bgcolor: clear, plot_bgcolor: clear, dragmode: false, hovermode: "closest",
    ...options,
    font: { family: "system-ui, sans-serif", size: 13, color: c.text },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: clear },
    xaxis: axis(options.xaxis, c), yaxis: axis(options.yaxis, c),
  });
  const figures = [...document.querySelectorAll(".plot + script")].map((script) => ({
    place: script.previousElementSibling, ...JSON.parse(script.textContent),
  }));
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const isOpen = (place) => place.closest("details:not([open])") === null; // a closed one has no width to draw in
  const draw = (c) => figures.filter((f) => isOpen(f.place))
    .map((f) => Plotly.react(f.place, f.data, layout(f.layout, c), config));

  // Download a figure as PNG, on the background of the page.
  const save = async (figure, name) => {
    const c = screenColours();
    const { width, height } = figure.place.getBoundingClientRect();
    const whole = { ...layout(figure.layout, c), paper_bgcolor: c.back };
    const options = { format: "png", width, height, scale: 2 };
    const link = document.createElement("a");
    link.href = await Plotly.toImage({ data: figure.data, layout: whole }, options);
    link.download = `${name}.png`;
    link.click();
  };
  // Download an SVG of the page as PNG: copy the computed styles into its elements first.
  const saveDrawn = async (svg, name) => {
    const { width, height } = svg.viewBox.baseVal;
    const copy = svg.cloneNode(true);
    const all = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, k) => {
      const look = getComputedStyle(all[k]);
      for (const property of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font"])
        element.style.setProperty(property, look.getPropertyValue(property));
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", 3 * width);
    copy.setAttribute("height", 3 * height);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 3 * width, height: 3 * height });
    const pen = canvas.getContext("2d");
    pen.fillStyle = screenColours().back;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0);
    Object.assign(document.createElement("a"), { href: canvas.toDataURL("image/png"), download: `${name}.png` }).click();
  };
  const offer = (place, k, click) => {
    const button = document.createElement("button");
    const section = place.closest("section")?.id || "figure";
    button.type = "button";
    button.className = "save";
    button.textContent = "Download PNG";
    button.setAttribute("aria-label", `Download PNG: ${place.getAttribute("aria-label")}`);
    button.addEventListener("click", () => click(`${section}-${k + 1}`));
    const figure = place.closest("figure");
    (place.matches("svg") ? place : figure.querySelector("figcaption")).after(button);
  };
  figures.forEach((figure, k) => offer(figure.place, k, (name) => save(figure, name)));
  document.querySelectorAll("svg.intervals").forEach((svg, k) => offer(svg, k, (name) => saveDrawn(svg, name)));

  // Mark tables that are wider than the screen.
  const cue = () => document.querySelectorAll(".wide").forEach((wide) => {
    wide.classList.toggle("cut", wide.scrollWidth > wide.clientWidth + 1);
  });
  draw(screenColours());
  cue();
  document.querySelectorAll("details").forEach((fold) => fold.addEventListener("toggle", () => {
    draw(screenColours());
    cue();
  }));
  addEventListener("resize", cue);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(screenColours()));
  addEventListener("beforeprint", () => draw(PAPER));
  addEventListener("afterprint", () => draw(screenColours()));
})();
