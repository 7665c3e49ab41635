/** Questions over HTTP, and refusals in the server's own words. */

export class Refused extends Error {
  /** @param {string} what @param {string} fix */
  constructor(what, fix) {
    super(what);
    this.fix = fix;
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
  // Who stands between page and server may answer with something else than JSON.
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  throw new Refused(told.what ?? told.detail?.[0]?.msg ?? `the server answered ${answer.status}`, told.fix ?? '');
}
