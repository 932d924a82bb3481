// Charts as PNG files: canvas and SVG combined, in the colours of the page, at double resolution.

import { download } from "./csv.js";

const STYLES = [
  ...["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin"],
  ...["opacity", "font", "paint-order"],
];

/** Download the picture in `root`, with a title above it. Nothing happens while there is no picture. */
export async function savePicture(root, title, name) {
  const svg = root.querySelector("svg");
  if (!svg) return;
  const [width, height] = ["width", "height"].map((side) => Number(svg.getAttribute(side)));
  const head = 34;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * (height + head)];
  const context = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  context.scale(2, 2);
  context.fillStyle = style.getPropertyValue("--card");
  context.fillRect(0, 0, width, height + head);
  context.fillStyle = style.getPropertyValue("--text");
  context.font = `600 14px ${style.fontFamily}`;
  context.fillText(title, 8, 22, width - 16);
  const layer = root.querySelector("canvas");
  if (layer) {
    const [left, top] = [layer.style.left, layer.style.top].map(parseFloat);
    context.drawImage(layer, left, top + head, parseFloat(layer.style.width), parseFloat(layer.style.height));
  }
  context.drawImage(await toImage(svg, width, height), 0, head, width, height);
  download(canvas.toDataURL("image/png"), `${name}.png`);
}

/** Return the SVG as an image. The styles of the page are copied into its elements. */
async function toImage(svg, width, height) {
  const copy = svg.cloneNode(true);
  const elements = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((element, k) => {
    const computed = getComputedStyle(elements[k]);
    for (const property of STYLES) element.style.setProperty(property, computed.getPropertyValue(property));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return image;
}
