/**
 * The messages and answers of the server as types, for the checker alone; nothing here runs.
 * The truth about messages is protocol.py.
 *
 * @typedef {{name: string, group: string, lethal: boolean, decay: number}} Meter
 * @typedef {{name: string, cell: number | null, hours: [number, number] | null, open_at: boolean[], ticks: number,
 *   price: number, effects: Record<string, number>}} Affordance
 * @typedef {{name: string, description: string, size: number[], max_steps: number, day: number, temporal: boolean,
 *   shuffled: boolean, dollars: number, currency: string | null, actions: string[], rewards: string[],
 *   meters: Meter[], affordances: Affordance[]}} World
 * @typedef {{number: number, env_steps: number, kind: string, row: number, length: number, stage: number,
 *   cause: string, return: number}} Kept
 * @typedef {'town' | 'gym'} Kind of a run
 * @typedef {{kind: Kind, world?: World, text?: string, recordings: Kept[], env?: string, threshold?: number | null,
 *   limit?: number | null}} About a town has a world and its text, a gym the rest
 * @typedef {{visits: number[], novelty: (number | null)[] | null, transitions: [string, string, number][],
 *   causes: Record<string, number>}} Maps of all of training
 * @typedef {'running' | 'finished' | 'interrupted' | 'diverged' | 'published' | 'damaged'} State of a run
 * @typedef {{name: string, recipe: string, state: State, env_steps: number, checkpoints: number, best: number | null,
 *   last: number | null, seconds: number, problem: string, scores: number[], random: number | null}} RunLine
 *
 * @typedef {{type: 'run_status', run: string, kind: Kind, state: State, env_steps: number, budget: number, episodes: number,
 *   told: string[]}} RunStatus
 * @typedef {{type: 'episode_start', source: string, side: 0 | 1, episode: number, row: number, env_steps: number,
 *   length: number | null, who: string, cell_of: number[], outputs_are: 'values' | 'probabilities'}} EpisodeStart
 * @typedef {{type: 'frame', side: 0 | 1, episode: number, age: number[], cell: number[], hour: number[],
 *   progress: number[], using: number[], meters: number[][], action: (number | null)[],
 *   outputs: (number[] | null)[], mask: (boolean[] | null)[], reward: (number | null)[],
 *   components: (number[] | null)[], why: (string | null)[], sent: number}} Frame
 * @typedef {{type: 'wall', env_steps: number, cell: number[], age: number[], alive: number[],
 *   stage: number[] | null, sent: number}} Wall
 * @typedef {{type: 'lived', run: string, row: number, env_steps: number, length: number, cause: string,
 *   ended: number}} Lived
 * @typedef {{type: 'episode_end', side: 0 | 1, episode: number, length: number, cause: string, reward: number,
 *   certificate: string[]}} EpisodeEnd
 * @typedef {{type: 'metrics', run: string, series: Record<string, [number, number][]>,
 *   evaluations: Record<string, any>[]}} Metrics
 * @typedef {{type: 'stage_change', run: string, env_steps: number, row: number, from_stage: number,
 *   to_stage: number, reason: string}} StageChange
 * @typedef {{type: 'alert', run: string, env_steps: number, name: string, message: string, tip: string}} Alert
 * @typedef {{type: 'checkpoint', run: string, name: string, env_steps: number, score: number | null,
 *   best: boolean, gone: string[]}} Checkpoint
 * @typedef {{line: number, column: number, what: string, fix: string}} Mistake
 * @typedef {{type: 'checked', number: number, mistakes: Mistake[], world: World | null}} Checked
 * @typedef {{type: 'hello', protocol: number, version: string, run: string | null, program: string,
 *   role: 'operator' | 'viewer'}} Hello
 * @typedef {{type: 'error', what: string, fix: string}} Refusal
 * @typedef {RunStatus | EpisodeStart | Frame | Wall | Lived | EpisodeEnd | Metrics | StageChange | Alert |
 *   Checkpoint | Checked | Hello | Refusal} FromServer
 *
 * @typedef {{age: number, cell: number, hour: number, progress: number, using: number, meters: number[],
 *   action: number | null, outputs: number[] | null, mask: boolean[] | null, reward: number | null,
 *   components: number[] | null, why: string | null}} Moment
 * @typedef {'training' | 'checkpoint' | 'recording' | 'none'} Source
 *
 * @typedef {{name: string, looks: number, height: number, width: number}} Picture that is a part of an observation
 * @typedef {{episode: string, checkpoint: string, who: string, seed: number, greedy: boolean, actions: string[],
 *   chosen: 'one' | 'each', components: string[], more: number, pictures: Picture[], advantage: string}} EpisodeAbout
 * @typedef {{since: number, known: number, ended: 'terminated' | 'truncated' | 'stopped' | null, problem: string,
 *   unseen: string, drawn: number, outputs_are: string[], obs: (number | null)[][], actions: (number | null)[][],
 *   outputs: Record<string, (number | null)[][]>, rewards: (number | null)[], values: (number | null)[],
 *   advantages: (number | null)[], about: EpisodeAbout | null}} EpisodePart
 */
export {};
