// The page: follows the run's stream, asks for what is shown, and keeps the choices.

import { startTheme } from "/colours.js";
import { MapPanel } from "/maps.js";
import { RowPanels, TrackedPanel } from "/panels.js";
import { date, duration, short, whole } from "/text.js";

const MOST_SEEDS = 1000;
const byId = (id) => document.getElementById(id);
const rowChoice = byId("row");
const seedChoice = byId("seed");
const curves = new RowPanels();
const tracked = new TrackedPanel();
const maps = new MapPanel();
const state = { run: null, row: null, seed: null, shown: null, version: -1, busy: false, again: false };

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? "The server refused.");
  return content;
}

// One refresh at a time; what comes meanwhile is one more.
async function refresh() {
  if (state.busy) {
    state.again = true;
    return;
  }
  state.busy = true;
  try {
    do {
      state.again = false;
      await load();
    } while (state.again);
  } catch (error) {
    setState("lost", "No answer");
    showProblems([...(state.run?.problems ?? []), String(error.message ?? error)]);
  } finally {
    state.busy = false;
  }
}

async function load() {
  state.run = await ask("/api/run");
  showRun(state.run);
  const row = chosenRow();
  if (!row) return;
  const key = `${row.id}\n${state.seed}`;
  if (key === state.shown && row.version === state.version) return;
  const isNew = key !== state.shown;
  const seed = state.seed === null ? "" : `&seed=${state.seed}`;
  const name = encodeURIComponent(row.id);
  const data = await ask(`/api/row?row=${name}${seed}`);
  const member = state.seed ?? row.seeds[0][0];
  const start = isNew ? 0 : maps.frames.length;
  let map = await ask(`/api/map?row=${name}&seed=${member}&from=${start}`);
  if (map.total < start) map = await ask(`/api/map?row=${name}&seed=${member}&from=0`);
  if (`${chosenRow()?.id}\n${state.seed}` !== key) {
    state.again = true; // another choice was made meanwhile
    return;
  }
  state.shown = key;
  state.version = data.version;
  show(row, data, map, isNew || map.total < start);
}

function show(row, data, map, isNew) {
  const count = row.seeds.reduce((sum, [, seeds]) => sum + seeds, 0);
  const about = [state.run.name, title(row), state.seed === null ? `${count} seeds` : `seed ${state.seed}`].join(" · ");
  if (isNew) maps.clear();
  maps.add(map, { about, end: row.steps });
  tracked.show(data.tracked, { about, end: row.steps });
  curves.show(data, { steps: row.steps, about, seeds: count });
  const said = data.diverged.slice(0, 5).map(({ seed, update }) => (update === null ? `seed ${seed}` : `seed ${seed} at update ${whole(update)}`));
  if (data.diverged.length > said.length) said.push(`${data.diverged.length - said.length} more`);
  const parts = [`${row.env}, ${whole(row.steps)} steps`, `${row.finished} of ${row.units} units finished`];
  if (row.latest) parts.push(`last record ${new Date(1000 * row.latest).toLocaleString()}`);
  if (said.length) parts.push(`diverged: ${said.join(", ")}`);
  byId("row-state").textContent = parts.join(" · ");
  showProblems(map.problem ? [...state.run.problems, map.problem] : state.run.problems);
}

function title(row) {
  return row.label === row.id ? row.id : `${row.label} (${row.id})`;
}

function chosenRow() {
  return state.run?.rows.find((row) => row.id === state.row);
}

function showRun(run) {
  document.title = `${run.name} · valuetrack`;
  byId("name").textContent = run.name;
  byId("about").textContent = [run.experiment, run.preset === "none" ? null : run.preset, `begun ${date(run.created)}`].filter(Boolean).join(" · ");
  byId("bar").value = run.total ? run.done / run.total : 0;
  byId("steps").textContent = `${short(run.done)} of ${short(run.total)}`;
  byId("rate").textContent = run.rate ? whole(run.rate) : "–";
  byId("left").textContent = run.finished ? "finished" : duration(run.left);
  const sum = (name) => run.rows.reduce((total, row) => total + row[name], 0);
  byId("units").textContent = `${sum("finished")} of ${sum("units")}`;
  byId("diverged").textContent = String(sum("diverged"));
  byId("diverged").classList.toggle("warn", sum("diverged") > 0);
  if (run.finished) setState("", "Finished");
  else if (run.rate) setState("running", "Running");
  else setState("quiet", sum("done") ? "No news" : "Waiting");
  showProblems(run.problems);
  fillRows(run.rows);
}

function setState(kind, text) {
  const pill = byId("state");
  pill.className = `pill ${kind}`;
  if (pill.textContent !== text) pill.textContent = text;
}

function showProblems(sentences) {
  const list = byId("problems");
  list.hidden = !sentences.length;
  if (list.dataset.said === sentences.join("\n")) return;
  list.dataset.said = sentences.join("\n");
  list.replaceChildren(...sentences.map((sentence) => {
    const item = document.createElement("li");
    item.textContent = sentence;
    return item;
  }));
}

function fillRows(rows) {
  const known = [...rowChoice.options].map((option) => option.value).join("\n");
  if (known !== rows.map((row) => row.id).join("\n")) {
    rowChoice.replaceChildren(...rows.map((row) => new Option(title(row), row.id)));
  }
  if (!rows.some((row) => row.id === state.row)) state.row = rows[0]?.id ?? null;
  rowChoice.value = state.row ?? "";
  fillSeeds();
}

function fillSeeds() {
  const row = chosenRow();
  const text = JSON.stringify(row?.seeds ?? []);
  if (seedChoice.dataset.seeds !== text) {
    seedChoice.dataset.seeds = text;
    const seeds = (row?.seeds ?? []).flatMap(([first, count]) => Array.from({ length: Math.min(count, MOST_SEEDS) }, (_, i) => first + i));
    const options = seeds.slice(0, MOST_SEEDS).map((seed) => new Option(String(seed), String(seed)));
    seedChoice.replaceChildren(new Option("all", ""), ...options);
    if (!seeds.includes(state.seed)) state.seed = null;
  }
  seedChoice.value = state.seed === null ? "" : String(state.seed);
}

rowChoice.addEventListener("change", () => {
  state.row = rowChoice.value;
  fillSeeds();
  refresh();
});
seedChoice.addEventListener("change", () => {
  state.seed = seedChoice.value === "" ? null : Number(seedChoice.value);
  refresh();
});
for (const form of document.querySelectorAll("form")) form.addEventListener("submit", (event) => event.preventDefault());

// A hidden page needs no news, and frees its connection: browsers have six per server.
let stream = null;
function listen() {
  stream?.close();
  stream = null;
  if (document.hidden) return;
  stream = new EventSource("/api/events");
  stream.addEventListener("message", refresh);
  stream.addEventListener("error", () => setState("lost", "Not connected"));
}
document.addEventListener("visibilitychange", listen);

startTheme(byId("theme"), () => {
  curves.redraw();
  tracked.redraw();
  maps.redraw();
});
refresh();
listen();
