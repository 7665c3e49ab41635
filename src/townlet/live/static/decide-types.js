/**
 * Types of the decision service's stats, for the type checker only.
 * Defined in townlet.decide.
 *
 * @typedef {{name: string, critical: boolean, what: string, fix: string, since: number}} Alarm
 * @typedef {{domain: string, argument: string, policy: string, now: number, uptime_seconds: number, version: number, gate_only: boolean,
 *   games: number, problem: string}} Service `now` and all `at`, `since`, `time`: seconds since 1970
 * @typedef {{enabled: boolean, validate: boolean, running: boolean, interval: number, samples: number, validated: number,
 *   agreed: number, slow: number, means: Record<'loss' | 'batch' | 'step_seconds' | 'agreement', number | null>,
 *   steps: number, steps_per_second: number, step_seconds: number,
 *   failed: number, problem: string, agreement_lifetime: number | null,
 *   verdicts: Record<string, number>, step: number | null, loss: number | null, batch: number | null,
 *   reward: number | null, entropy: number | null, agreement: number | null, grad_norm: number | null}} Training
 * @typedef {{size: number, capacity: number, use: number, held_out: number, decisions: number, joined: number,
 *   expired: number, pending: number, not_executed: number, waited: number, failed: number, duplicates: number,
 *   late: number, unknown: number, oldest_pending: number, mean_pending: number, expire_after: number,
 *   completed: number}} Experience
 * @typedef {{pass_rate: number | null, pass_rate_lifetime: number | null, reasons: Record<string, number>,
 *   components: Record<string, number>, hash: string}} Gate
 * @typedef {{reference: string, gain: Estimate | null, parts: Record<string, number>}} Evidence `reference`: the policy
 *   that the serving version is compared with; empty: none
 *
 * @typedef {{number: number, territory: string, action: number, send: boolean, reason: string, confidence: number,
 *   expected: number | null, actual: number | null, version: number, at: number}} Decision
 * @typedef {{kind: 'map', values: number[][], types?: Record<string, number>}} ActionMap
 * @typedef {{kind: 'bars', values: number[], labels?: string[], noun?: string}} ActionBars `noun`: word for an action
 * @typedef {ActionMap | ActionBars} Actions how often each action was sent recently, in the form that the domain draws
 * @typedef {{per_second: number, p50_ms: number | null, p99_ms: number | null, waiting: number, overloaded: number,
 *   recent_count: number, recent: Decision[], actions: Actions, confidence: number[], entropy: number | null,
 *   expected_and_actual: [number, number][], mean_actual: number | null, mean_expected: number | null,
 *   outcomes: number, actual_first: number | null, actual_recent: number | null}} Decisions
 *   `actual_first`, `actual_recent`: mean reward of the first and last 500 outcomes
 *
 * @typedef {{value: number | null, low: number | null, high: number | null, effective: number, count: number}} Estimate
 * @typedef {{verdict: string, first: number, last: number, times: number, at: number, applied: boolean, reason: string,
 *   estimate: Estimate | null}} HistoryEntry consecutive changes with the same verdict
 * @typedef {{version: number, parent: number | null, step: number, digest: string, time: number}} StoredVersion
 * @typedef {{serving: number | null, pinned: number | null, before: number | null, versions: StoredVersion[],
 *   damaged: Record<string, string>, history: HistoryEntry[]}} Versions oldest first
 * @typedef {{names: string[], rows: (number | null)[][]}} Curves the last ten minutes; the first column is `at`
 *
 * @typedef {{id: string, role: string, host: string, seen_seconds_ago: number, version: number, learns: boolean,
 *   per_second: number, lag_ms: number | null, lag_events: number | null}} Process of a service in a database
 *
 * @typedef {{type: 'stats', alarms: Alarm[], processes: Process[], service: Service, training: Training, buffer: Experience, gate: Gate,
 *   evidence: Evidence, decisions: Decisions, versions: Versions, curves: Curves}} Stats
 * @typedef {{show: (stats: Stats) => void, redraw?: () => void}} Panel
 */
export {};
