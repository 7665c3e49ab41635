/** Questions over HTTP, and refusals in the server's own words. */

export class Refused extends Error {
  /** @param {string} what @param {string} fix */
  constructor(what, fix) {
    super(what);
    this.fix = fix;
  }
}

/** @param {string} text @returns {any} */
function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/**
 * The answer to a question; with a body, to a wish.
 * @param {string} path @param {object} [body]
 * @returns {Promise<any>}
 */
export async function ask(path, body) {
  const asked = body && { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  const answer = await fetch(path, asked || undefined);
  const text = await answer.text();
  const told = parsed(text);
  if (answer.ok) return told;
  // The server refuses with plain text; a proxy may answer with an HTML page.
  const plain = answer.headers.get('Content-Type')?.startsWith('text/plain') ? text.trim().slice(0, 200) : '';
  throw new Refused(told.what ?? told.detail?.[0]?.msg ?? (plain || `the server answered ${answer.status}`), told.fix ?? '');
}
