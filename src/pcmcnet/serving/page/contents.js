// Fields for texts, pictures, dates, lists of categories, vectors and ids.
//
// The state stores a picture as a data URI, a date as ISO text, and a list or a vector as an array. Input that cannot
// be read is stored as typed, and a message appears below the field.

import { make } from "./dom.js";
import { plain, pretty } from "./format.js";

const MAX_PICTURE_SIDE = 128; // pixels; models use at most 64
const MAX_PICTURE_BYTES = 8192; // larger files are sent as a smaller copy
const PICTURE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"]; // sent without conversion
const MAX_CHIPS = 12; // categories with a button each
const MAX_SHOWN_NUMBERS = 2; // of a vector that is not being edited

/** A short message if a value is invalid, or else an empty text. */
export const problems = {
  text: (column, value) => (typeof value === "string" ? "" : "enter a text"),
  image: (column, value) => (typeof value === "string" && value !== "" ? "" : "choose a picture"),
  datetime: (column, value) => (typeof value === "string" && value !== "" ? "" : "enter a date and time"),
  multi: (column, value) => (Array.isArray(value) ? "" : "not a list"),
  vector: (column, value) => {
    if (!Array.isArray(value)) return "not a list of numbers";
    const isValid = column.size === null ? value.length > 0 : value.length === column.size;
    return isValid ? "" : `expected ${column.size ?? "some"} numbers, got ${value.length}`;
  },
  id: (column, value) => (Number.isInteger(value) && value >= 0 ? "" : "not a whole number"),
};

/** Whether a value is outside the training data; false if that is unknown. */
export const outsideTraining = {
  multi: (column, value) =>
    Array.isArray(value) &&
    column.categories?.length === column.distinct &&
    value.some((name) => !column.categories.includes(name)),
  datetime: (column, value) => Boolean(value && column.min) && (value < column.min.slice(0, 16) || value > column.max),
};

/** A short description of the values of a column, for its header. */
export const descriptions = {
  text: () => "text",
  image: () => "picture",
  datetime: (column) => (column.min ? `${column.min.slice(0, 10)} – ${column.max.slice(0, 10)}` : "date and time"),
  multi: (column) => (column.distinct ? `any of ${column.distinct}` : "list"),
  vector: (column) => (column.size ? `${column.size} numbers` : "numbers"),
  id: () => "id",
};

/** The value of a new alternative if no typical value is known. */
export const emptyValues = {
  text: () => "",
  image: () => null,
  datetime: (column) => column.max ?? "2024-01-01T12:00",
  multi: () => [],
  vector: (column) => Array(column.size ?? 1).fill(0),
  id: (column) => column.min ?? 0,
};

/** Return the element of a field, with a line for messages, and the function that checks its value. */
function frame(column, label, get, input, ...more) {
  const message = make("span", { class: "message" });
  const element = make("div", { class: "field" }, input, ...more, make("div", { class: "under" }, message));
  const check = () => {
    const value = get();
    const problem = value === null && column.may_be_null ? "" : problems[column.field](column, value);
    const isOutside = !problem && Boolean(outsideTraining[column.field]?.(column, value));
    input.setAttribute("aria-label", label());
    input.setAttribute("aria-invalid", problem ? "true" : "false");
    element.classList.toggle("wrong", problem !== "");
    element.classList.toggle("beyond", isOutside);
    input.title = isOutside ? "Not in the training data" : "";
    message.textContent = problem;
  };
  return { element, check };
}

export function textField(column, label, get, set) {
  const input = make("textarea", {
    ...{ rows: 2, spellcheck: "false", autocomplete: "off" },
    on: { input: () => write() },
  });
  const { element, check } = frame(column, label, get, input);

  function write() {
    set(input.value === "" && column.may_be_null ? null : input.value);
    check();
  }

  function refresh() {
    if (input.value !== (get() ?? "")) input.value = get() ?? "";
    check();
  }

  refresh();
  return { element, refresh, input };
}

export function datetimeField(column, label, get, set) {
  const input = make("input", {
    ...{ type: "datetime-local", step: 1 },
    on: {
      input: () => {
        set(input.value || (column.may_be_null ? null : ""));
        check();
      },
    },
  });
  const { element, check } = frame(column, label, get, input);

  function refresh() {
    const text = String(get() ?? "").replace(" ", "T");
    input.value = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00` : text.slice(0, 19); // to the second
    check();
  }

  refresh();
  return { element, refresh, input };
}

/** Names separated by commas. If the training data has few names, each of them also has a button. */
export function multiField(column, label, get, set) {
  const categories = (column.categories ?? []).length <= MAX_CHIPS ? (column.categories ?? []) : [];
  const input = make("input", {
    ...{ type: "text", autocomplete: "off", spellcheck: "false", placeholder: "none" },
    on: {
      input: () => {
        set(readNames(input.value));
        refresh("text");
      },
      change: () => refresh(),
    },
  });
  const chips = categories.map((name) =>
    make("button", { type: "button", class: "chip", on: { click: () => toggle(name) } }, name),
  );
  const { element, check } = frame(column, label, get, input, make("div", { class: "chips" }, ...chips));

  function toggle(name) {
    const names = Array.isArray(get()) ? get() : [];
    set(names.includes(name) ? names.filter((other) => other !== name) : [...names, name]);
    refresh();
  }

  function refresh(from = "outside") {
    const names = get() ?? [];
    if (from !== "text") input.value = writeNames(names);
    chips.forEach((chip, k) => chip.setAttribute("aria-pressed", String(names.includes(categories[k]))));
    chips.forEach((chip, k) => chip.setAttribute("aria-label", `${categories[k]}, ${label()}`));
    check();
  }

  refresh();
  return { element, refresh, input };
}

function readNames(text) {
  if (text.trim().startsWith("[")) {
    try {
      return JSON.parse(text).map(String); // names may contain commas
    } catch {
      return text;
    }
  }
  return text
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}

function writeNames(names) {
  if (!Array.isArray(names)) return String(names);
  const isPlain = names.every((name) => !/[,[]/.test(name) && name === name.trim());
  return isPlain ? names.join(", ") : JSON.stringify(names);
}

/** Shows the first few numbers, and all of them while the cell is being edited. */
export function vectorField(column, label, get, set) {
  const input = make("input", {
    ...{ type: "text", autocomplete: "off", spellcheck: "false", class: "number" },
    on: {
      focus: () => {
        input.value = text(get());
        input.select();
      },
      blur: () => refresh(),
      input: () => {
        set(readNumbers(input.value) ?? (column.may_be_null && input.value.trim() === "" ? null : input.value));
        check();
      },
    },
  });
  const { element, check } = frame(column, label, get, input);
  const text = (value) => (Array.isArray(value) ? value.map(plain).join(", ") : String(value ?? ""));

  function refresh() {
    const value = get();
    const isLong = Array.isArray(value) && value.length > MAX_SHOWN_NUMBERS;
    const start = () => value.slice(0, MAX_SHOWN_NUMBERS).map(pretty).join(", ");
    if (document.activeElement !== input) input.value = isLong ? `${start()}, … (${value.length})` : text(value);
    check();
  }

  refresh();
  return { element, refresh, input };
}

function readNumbers(text) {
  const parts = text
    .replace(/^\s*\[|\]\s*$/g, "")
    .replaceAll("−", "-")
    .split(/[\s,;]+/)
    .filter((part) => part !== "");
  const numbers = parts.map(Number);
  return numbers.length && numbers.every(Number.isFinite) ? numbers : null;
}

export function idField(column, label, get, set) {
  const input = make("input", {
    ...{ type: "text", inputmode: "numeric", autocomplete: "off", class: "number" },
    on: {
      input: () => {
        set(/^\d+$/.test(input.value.trim()) ? Number(input.value) : input.value);
        check();
      },
    },
  });
  const { element, check } = frame(column, label, get, input);

  function refresh() {
    input.value = String(get() ?? "");
    check();
  }

  refresh();
  return { element, refresh, input };
}

/** A picture; a click on it chooses another file. */
export function imageField(column, label, get, set) {
  const preview = make("img", { alt: "" });
  const caption = make("span", { class: "words" }, "Choose…");
  const input = make("input", {
    ...{ type: "file", accept: "image/*", class: "hidden" },
    on: { change: () => load(input.files[0]) },
  });
  const pick = make("label", { class: "pick" }, preview, caption, input);
  const { element, check } = frame(column, label, get, pick);

  async function load(file) {
    if (!file) return;
    try {
      set(await readPicture(file));
      refresh();
    } catch {
      element.classList.add("wrong");
      element.querySelector(".message").textContent = "not a picture";
    }
    input.value = ""; // otherwise choosing the same file again has no effect
  }

  function refresh() {
    const value = get();
    const isPicture = typeof value === "string" && value.startsWith("data:image/");
    preview.hidden = !isPicture;
    if (isPicture && preview.getAttribute("src") !== value) preview.src = value;
    check();
    pick.removeAttribute("aria-label");
    input.setAttribute("aria-label", label());
    input.setAttribute("aria-invalid", pick.getAttribute("aria-invalid"));
    pick.removeAttribute("aria-invalid");
  }

  refresh();
  return { element, refresh, input };
}

/** Return a file as a data URI: unchanged if it is small, or else a smaller copy. Raises if it is not a picture. */
async function readPicture(file) {
  const bitmap = await createImageBitmap(file);
  if (file.size <= MAX_PICTURE_BYTES && PICTURE_TYPES.includes(file.type)) return readFile(file);
  const scale = Math.min(1, MAX_PICTURE_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = make("canvas", {
    width: Math.max(1, Math.round(bitmap.width * scale)),
    height: Math.max(1, Math.round(bitmap.height * scale)),
  });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}

function readFile(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
