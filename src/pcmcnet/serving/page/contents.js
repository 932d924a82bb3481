// Values that are more than a number or a category: a text, a picture, an instant, a list of categories, a vector, an id.
//
// In the state a picture is a data URI, an instant ISO text, a list and a vector arrays. What was typed and cannot be
// read stays text, and is said beside it.

import { make } from "./dom.js";
import { plain, pretty } from "./format.js";

const SIDE = 128; // pixels of a picture that is sent: models look at 64 at most
const SMALL = 8192; // bytes of a file that is sent as it is
const SENT = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];
const CHIPS = 12; // categories that have a button each
const SHOWN = 2; // numbers of a vector

/** What is wrong with such a value, in few words; empty where nothing is. */
export const problems = {
  text: (column, value) => (typeof value === "string" ? "" : "needs a text"),
  image: (column, value) => (typeof value === "string" && value !== "" ? "" : "needs a picture"),
  datetime: (column, value) => (typeof value === "string" && value !== "" ? "" : "needs a date and a time"),
  multi: (column, value) => (Array.isArray(value) ? "" : "not a list"),
  vector: (column, value) => {
    if (!Array.isArray(value)) return "not numbers";
    const right = column.size === null ? value.length > 0 : value.length === column.size;
    return right ? "" : `needs ${column.size ?? "some"} numbers, has ${value.length}`;
  },
  id: (column, value) => (Number.isInteger(value) && value >= 0 ? "" : "not a whole number"),
};

/** Whether such a value lies outside what the model saw in training, where that can be told. */
export const beyond = {
  multi: (column, value) =>
    Array.isArray(value) &&
    column.categories?.length === column.distinct &&
    value.some((name) => !column.categories.includes(name)),
  datetime: (column, value) => Boolean(value && column.min) && (value < column.min.slice(0, 16) || value > column.max),
};

/** What a column holds, for its head. */
export const about = {
  text: () => "text",
  image: () => "picture",
  datetime: (column) => (column.min ? `${column.min.slice(0, 10)} – ${column.max.slice(0, 10)}` : "date and time"),
  multi: (column) => (column.distinct ? `lists of ${column.distinct}` : "list"),
  vector: (column) => (column.size ? `${column.size} numbers` : "numbers"),
  id: () => "id",
};

/** What a new alternative has where nothing better is known. */
export const blank = {
  text: () => "",
  image: () => null,
  datetime: (column) => column.max ?? "2024-01-01T12:00",
  multi: () => [],
  vector: (column) => Array(column.size ?? 1).fill(0),
  id: (column) => column.min ?? 0,
};

/** The element of a field with a line below for what is wrong, and how it is shown. */
function frame(column, label, get, input, ...more) {
  const message = make("span", { class: "message" });
  const element = make("div", { class: "field" }, input, ...more, make("div", { class: "under" }, message));
  const judge = () => {
    const value = get();
    const wrong = value === null && column.may_be_null ? "" : problems[column.field](column, value);
    const far = !wrong && Boolean(beyond[column.field]?.(column, value));
    input.setAttribute("aria-label", label());
    input.setAttribute("aria-invalid", wrong ? "true" : "false");
    element.classList.toggle("wrong", wrong !== "");
    element.classList.toggle("beyond", far);
    input.title = far ? "Not seen in training" : "";
    message.textContent = wrong;
  };
  return { element, judge };
}

export function textField(column, label, get, set) {
  const input = make("textarea", {
    ...{ rows: 2, spellcheck: "false", autocomplete: "off" },
    on: { input: () => write() },
  });
  const { element, judge } = frame(column, label, get, input);

  function write() {
    set(input.value === "" && column.may_be_null ? null : input.value);
    judge();
  }

  function refresh() {
    if (input.value !== (get() ?? "")) input.value = get() ?? "";
    judge();
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
        judge();
      },
    },
  });
  const { element, judge } = frame(column, label, get, input);

  function refresh() {
    const text = String(get() ?? "").replace(" ", "T");
    input.value = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00` : text.slice(0, 19); // to the second
    judge();
  }

  refresh();
  return { element, refresh, input };
}

/** Names with commas between them; those of the training table have buttons where they are few. */
export function multiField(column, label, get, set) {
  const known = (column.categories ?? []).length <= CHIPS ? (column.categories ?? []) : [];
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
  const chips = known.map((name) =>
    make("button", { type: "button", class: "chip", on: { click: () => turn(name) } }, name),
  );
  const { element, judge } = frame(column, label, get, input, make("div", { class: "chips" }, ...chips));

  function turn(name) {
    const names = Array.isArray(get()) ? get() : [];
    set(names.includes(name) ? names.filter((one) => one !== name) : [...names, name]);
    refresh();
  }

  function refresh(from = "outside") {
    const names = get() ?? [];
    if (from !== "text") input.value = writeNames(names);
    chips.forEach((chip, k) => chip.setAttribute("aria-pressed", String(names.includes(known[k]))));
    chips.forEach((chip, k) => chip.setAttribute("aria-label", `${known[k]}, ${label()}`));
    judge();
  }

  refresh();
  return { element, refresh, input };
}

function readNames(text) {
  if (text.trim().startsWith("[")) {
    try {
      return JSON.parse(text).map(String); // names may hold commas
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
  const easy = names.every((name) => !/[,[]/.test(name) && name === name.trim());
  return easy ? names.join(", ") : JSON.stringify(names);
}

/** A few of the numbers; all of them while the cell is being edited. */
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
        judge();
      },
    },
  });
  const { element, judge } = frame(column, label, get, input);
  const text = (value) => (Array.isArray(value) ? value.map(plain).join(", ") : String(value ?? ""));

  function refresh() {
    const value = get();
    const cut = Array.isArray(value) && value.length > SHOWN;
    if (document.activeElement !== input)
      input.value = cut ? `${value.slice(0, SHOWN).map(pretty).join(", ")}, … (${value.length})` : text(value);
    judge();
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
        judge();
      },
    },
  });
  const { element, judge } = frame(column, label, get, input);

  function refresh() {
    input.value = String(get() ?? "");
    judge();
  }

  refresh();
  return { element, refresh, input };
}

/** The picture itself is the button that chooses another file. */
export function imageField(column, label, get, set) {
  const shown = make("img", { alt: "" });
  const words = make("span", { class: "words" }, "Choose…");
  const input = make("input", {
    ...{ type: "file", accept: "image/*", class: "hidden" },
    on: { change: () => take(input.files[0]) },
  });
  const pick = make("label", { class: "pick" }, shown, words, input);
  const { element, judge } = frame(column, label, get, pick);

  async function take(file) {
    if (!file) return;
    try {
      set(await readPicture(file));
      refresh();
    } catch {
      element.classList.add("wrong");
      element.querySelector(".message").textContent = "not a picture";
    }
    input.value = ""; // the same file may be chosen again
  }

  function refresh() {
    const value = get();
    const there = typeof value === "string" && value.startsWith("data:image/");
    shown.hidden = !there;
    if (there && shown.getAttribute("src") !== value) shown.src = value;
    judge();
    pick.removeAttribute("aria-label");
    input.setAttribute("aria-label", label());
    input.setAttribute("aria-invalid", pick.getAttribute("aria-invalid"));
    pick.removeAttribute("aria-invalid");
  }

  refresh();
  return { element, refresh, input };
}

/** A file as a data URI: as it is where it is small, and else a smaller copy. Raises where it is no picture. */
async function readPicture(file) {
  const bitmap = await createImageBitmap(file);
  if (file.size <= SMALL && SENT.includes(file.type)) return readFile(file);
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = make("canvas", {
    width: Math.max(1, Math.round(bitmap.width * scale)),
    height: Math.max(1, Math.round(bitmap.height * scale)),
  });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
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
