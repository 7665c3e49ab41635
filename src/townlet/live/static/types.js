/**
 * Types of the server's messages and answers, for the type checker only.
 * Defined by protocol.py, api.py and gym_episode.py.
 *
 * @typedef {{name: string, group: string, lethal: boolean, decay: number}} Meter
 * @typedef {{name: string, icon: string, cell: number | null, hours: [number, number] | null, open_at: boolean[],
 *   ticks: number, price: number, effects: Record<string, number>}} Affordance
 * @typedef {{name: string, description: string, size: number[], max_steps: number, day: number, temporal: boolean,
 *   shuffled: boolean, dollars: number, currency: string | null, actions: string[], rewards: string[],
 *   meters: Meter[], affordances: Affordance[]}} World
 * @typedef {{number: number, env_steps: number, kind: string, row: number, length: number, stage: number,
 *   cause: string, return: number}} Recording
 * @typedef {'town' | 'gym'} Kind of a run
 * @typedef {{kind: Kind, world?: World, text?: string, recordings: Recording[],
 *   curriculum?: {rows: number, first_stage: number} | null, env?: string, threshold?: number | null, goal?: number | null,
 *   limit?: number | null}} RunInfo towns have world and text, gyms the rest
 * @typedef {{visits: number[], novelty: (number | null)[] | null, transitions: [string, string, number][],
 *   counted: number, causes: Record<string, number>}} Maps totals of training; counted: fraction of the steps in visits and transitions
 * @typedef {'running' | 'finished' | 'stopped' | 'interrupted' | 'diverged' | 'published' | 'damaged'} RunState of a run
 * @typedef {{name: string, recipe: string, kind: Kind, state: RunState, env_steps: number, checkpoints: number, best: number | null,
 *   last: number | null, seconds: number, problem: string, scores: number[],
 *   random: number | null, lesson: string | null, shipped: boolean}} RunSummary
 *
 * @typedef {{type: 'run_status', run: string, kind: Kind, state: RunState, env_steps: number, budget: number, episodes: number,
 *   summary: string[]}} RunStatus
 * @typedef {{type: 'episode_start', source: string, side: 0 | 1, episode: number, row: number, env_steps: number,
 *   length: number | null, label: string, cell_of: number[], output_kind: OutputKind, name: string, seed: number | null, human: boolean, checkpoint: string | null}} EpisodeStart
 * @typedef {{type: 'frame', side: 0 | 1, episode: number, age: number[], cell: number[], hour: number[],
 *   progress: number[], using: number[], meters: number[][], action: (number | null)[],
 *   outputs: (number[] | null)[], mask: (boolean[] | null)[], reward: (number | null)[],
 *   components: (number[] | null)[], why: (string | null)[], events: (string[] | null)[], sent: number}} Frame
 * @typedef {{type: 'rows_overview', env_steps: number, cell: number[], age: number[], lowest_meter: number[],
 *   stage: number[] | null, sent: number}} RowsOverview
 * @typedef {{type: 'training_episode', run: string, row: number, env_steps: number, length: number, cause: string,
 *   ended: number}} TrainingEpisode
 * @typedef {{type: 'episode_end', side: 0 | 1, episode: number, length: number, cause: string, reward: number,
 *   certificate: string[]}} EpisodeEnd
 * @typedef {{type: 'metrics', run: string, series: Record<string, [number, number][]>,
 *   evaluations: Record<string, any>[]}} Metrics
 * @typedef {{type: 'stage_change', run: string, env_steps: number, row: number, from_stage: number,
 *   to_stage: number, reason: string}} StageChange
 * @typedef {{type: 'alert', run: string, env_steps: number, name: string, message: string, tip: string}} Alert
 * @typedef {{type: 'checkpoint', run: string, name: string, env_steps: number, score: number | null,
 *   best: boolean, removed: string[]}} Checkpoint
 * @typedef {{line: number, column: number, path: string[], what: string, fix: string}} WorldError
 * @typedef {{type: 'world_checked', number: number, errors: WorldError[], text: string | null, spec: WorldSpec | null,
 *   description: string, differences: string[], unobserved: string[], missing: string[], world: World | null}} WorldChecked
 * @typedef {{type: 'world_verdict', number: number, livable: boolean, sentences: string[]}} WorldVerdict
 * @typedef {{type: 'answer', number: number, question: string, sentences: string[],
 *   options: {label: string, chance: number, low: number, high: number, steps: number}[]}} Answer
 * @typedef {{type: 'hello', protocol: number, version: string, run: string | null, program: string,
 *   role: 'operator' | 'viewer'}} Hello
 * @typedef {{type: 'error', what: string, fix: string, number: number | null}} ErrorMessage
 * @typedef {RunStatus | EpisodeStart | Frame | RowsOverview | TrainingEpisode | EpisodeEnd | Metrics | StageChange | Alert |
 *   Checkpoint | WorldChecked | WorldVerdict | Answer | Hello | ErrorMessage} ServerMessage
 *
 * @typedef {{age: number, cell: number, hour: number, progress: number, using: number, meters: number[],
 *   action: number | null, outputs: number[] | null, mask: boolean[] | null, reward: number | null,
 *   components: number[] | null, why: string | null, events: string[] | null}} Timestep
 * @typedef {'training' | 'checkpoint' | 'recording' | 'none'} Source
 * @typedef {'values' | 'probabilities' | 'none'} OutputKind
 * @typedef {{kind: 'policy', run: string | null, checkpoint: string, epsilon: number}
 *   | {kind: 'random' | 'planner' | 'human'}} AgentChoice
 *
 * @typedef {Record<string, number>} Effects by meter
 * @typedef {{name: string, icon: string, cell: number[] | null, ticks: number, price: number,
 *   hours: [number, number] | null, each_tick: Effects, at_end: Effects}} PlaceSpec
 * @typedef {{name: string, start: number, decay: number, move: number, wait: number, group: string}} MeterSpec
 * @typedef {{description: string, max_steps: number, currency: string | null, dollars: number, lethal: string[],
 *   map: {kind: string, size: number[], layout: string, boundary: string},
 *   clock: {temporal: boolean, day: number, start: number | 'random'}, meters: MeterSpec[], affordances: PlaceSpec[]}} WorldSpec
 * @typedef {{op: 'set', path: string[], value: any} | {op: 'add', section: 'affordances' | 'meters', entry: object}
 *   | {op: 'remove', section: 'affordances' | 'meters', name: string}
 *   | {op: 'rename', section: 'affordances' | 'meters', name: string, to: string}} WorldChange
 * @typedef {{id: string, title: string, env_steps: number, run: string | null,
 *   state: 'running' | 'finished' | 'stopped' | 'failed', error: string}} TrainingJob
 * @typedef {{variant: string, description: string, env_steps: number, recommended: boolean,
 *   steps_per_second: number | null}} TrainingChoice
 * @typedef {{label: string, run: string | null, problem?: string, mean?: number, low?: number, high?: number,
 *   reached?: number, dies_of?: string | null}} TournamentLine
 * @typedef {{id: string, run: string, world: string, limit: number, episodes: number, over: boolean, problem: string,
 *   lines: TournamentLine[]}} Tournament
 *
 * @typedef {{name: string, count: number, height: number, width: number}} ImageBlock an image block of the observation
 * @typedef {{name: string, frames: number}} Feature one number of the observation, in each stacked frame
 * @typedef {{episode: string, checkpoint: string, label: string, seed: number, greedy: boolean, actions: string[],
 *   discrete: boolean, features: Feature[], columns: string[], omitted: number, images: ImageBlock[], advantage: string}} GymEpisodeInfo
 * @typedef {{since: number, known: number, ended: 'terminated' | 'truncated' | 'stopped' | null, error: string,
 *   render_problem: string, frames: number, output_kinds: string[], obs: (number | null)[][], actions: (number | null)[][],
 *   outputs: Record<string, (number | null)[][]>, rewards: (number | null)[], values: (number | null)[],
 *   advantages: (number | null)[], about: GymEpisodeInfo | null}} GymEpisodePart
 */
export {};
