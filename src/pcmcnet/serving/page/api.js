// Questions to the server. An answer that comes after a newer question was put is dropped.

const TOKEN = "pcmcnet-token";

/** What went wrong, in words for the page; `status` is 0 where no answer came. */
export class Refusal extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Ask once; raises a Refusal. Addresses are relative, so that the page also works behind a prefix. */
export async function ask(path, body = undefined, signal = undefined) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is pcmcnet serve still running?");
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refusal(words(content, answer.status), answer.status);
  if (content === null) throw new Refusal("The server's answer cannot be read.", answer.status);
  return content;
}

/** A question of which only the latest counts: an earlier one is broken off, and then gives undefined. */
export function latest(path) {
  let pending = null;
  return async (body) => {
    pending?.abort();
    const mine = new AbortController();
    pending = mine;
    try {
      const answer = await ask(path, body, mine.signal);
      return mine === pending ? answer : undefined;
    } catch (error) {
      if (mine !== pending || error.name === "AbortError") return undefined;
      throw error;
    }
  };
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

function words(content, status) {
  const detail = content?.error ?? content?.detail ?? content?.message;
  if (typeof detail === "string") return detail;
  if (typeof detail?.message === "string") return detail.message;
  if (Array.isArray(detail) && detail[0]?.msg) {
    return detail
      .map((one) => `${(one.loc ?? []).filter((part) => part !== "body").join(" → ")}: ${one.msg}`)
      .join("; ");
  }
  if (status === 401) return "A token is required.";
  if (status === 413) return "The question is too large for this server: take fewer alternatives.";
  if (status === 429 || status === 503) return "The server is busy. Try again in a moment.";
  return `The server refused the question (status ${status}).`;
}
