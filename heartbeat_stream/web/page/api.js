// The worker's JSON views.

const TIMEOUT_MS = 15000;

/** What a view answers. Throws an Error whose message is for people; signs in again where needed. */
export async function get(name, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  let response;
  try {
    response = await fetch(`api/${name}${query && "?" + query}`, {
      signal: AbortSignal.timeout(TIMEOUT_MS),
      headers: { Accept: "application/json" },
    });
  } catch {
    throw new Error("This worker does not answer.");
  }
  if (response.status === 401) {
    location.assign(`sign-in${location.search}`);
    throw new Error("Signed out.");
  }
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) {
    const error = new Error(body?.error ?? `This worker answers with ${response.status}.`);
    throw Object.assign(error, { status: response.status, body });
  }
  return body;
}
