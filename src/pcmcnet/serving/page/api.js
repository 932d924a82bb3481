// Requests to the server.

const TOKEN = "pcmcnet-token";

/** A failed request, with a message for the page; `status` is 0 if the server did not respond. */
export class RequestError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Return the JSON of a request; raises a RequestError. Relative paths let the page work behind a prefix. */
export async function sendRequest(path, body = undefined, signal = undefined) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server is not responding. Is pcmcnet serve still running?");
  }
  const content = await response.json().catch(() => null);
  if (!response.ok) throw new RequestError(errorMessage(content, response.status), response.status);
  if (content === null) throw new RequestError("The server's response could not be read.", response.status);
  return content;
}

/** Return a function that sends requests to `path`. A new request cancels the previous one, which returns undefined. */
export function latestRequest(path) {
  let current = null;
  return async (body) => {
    current?.abort();
    const controller = new AbortController();
    current = controller;
    try {
      const response = await sendRequest(path, body, controller.signal);
      return controller === current ? response : undefined;
    } catch (error) {
      if (controller !== current || error.name === "AbortError") return undefined;
      throw error;
    }
  };
}

export function storeToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

function errorMessage(content, status) {
  const detail = content?.error ?? content?.detail ?? content?.message;
  if (typeof detail === "string") return detail;
  if (typeof detail?.message === "string") return detail.message;
  if (Array.isArray(detail) && detail[0]?.msg) {
    return detail
      .map(({ loc, msg }) => `${(loc ?? []).filter((part) => part !== "body").join(" → ")}: ${msg}`)
      .join("; ");
  }
  if (status === 401) return "An access token is required.";
  if (status === 413) return "The request is too large for this server. Use fewer alternatives.";
  if (status === 429 || status === 503) return "The server is busy. Try again in a moment.";
  return `The server rejected the request (status ${status}).`;
}
