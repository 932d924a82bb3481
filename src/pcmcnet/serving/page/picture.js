// A chart as a PNG file: what is drawn on canvas and in SVG, in the colours of the page, at twice the size of the screen.

import { download } from "./csv.js";

const LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font", "paint-order", "stroke-linejoin"];

/** Save the picture in `root`, with its title above. */
export async function savePicture(root, title, name) {
  const svg = root.querySelector("svg");
  const [width, height] = ["width", "height"].map((side) => Number(svg.getAttribute(side)));
  const head = 34;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * (height + head)];
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  pen.scale(2, 2);
  pen.fillStyle = style.getPropertyValue("--card");
  pen.fillRect(0, 0, width, height + head);
  pen.fillStyle = style.getPropertyValue("--text");
  pen.font = `600 14px ${style.fontFamily}`;
  pen.fillText(title, 8, 22, width - 16);
  const below = root.querySelector("canvas");
  if (below) {
    const [left, top] = [below.style.left, below.style.top].map(parseFloat);
    pen.drawImage(below, left, top + head, parseFloat(below.style.width), parseFloat(below.style.height));
  }
  pen.drawImage(await image(svg, width, height), 0, head, width, height);
  download(canvas.toDataURL("image/png"), `${name}.png`);
}

/** The SVG as an image by itself: what the style sheet says goes into its elements. */
async function image(svg, width, height) {
  const copy = svg.cloneNode(true);
  const elements = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((element, k) => {
    const look = getComputedStyle(elements[k]);
    for (const property of LOOK) element.style.setProperty(property, look.getPropertyValue(property));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const found = new Image();
  found.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await found.decode();
  return found;
}
