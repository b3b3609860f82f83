// The page of `undertone serve`: recordings and texts for models, and the curves of runs.

const by = (id) => document.getElementById(id);
// The token comes behind `#`, which browsers send to no server. It is remembered for this tab alone.
const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? sessionStorage.getItem("token");
if (token) {
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
}
const headers = token ? { Authorization: `Bearer ${token}` } : {};

let models = [];
let transcript = null;
let outline = null;

function say(text, bad = false) {
  by("status").textContent = text;
  by("status").classList.toggle("bad", bad);
}

async function ask(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { ...headers, ...options.headers } });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Error(body?.error?.message ?? `the server answered ${response.status}`);
}

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

const clock = (seconds) => {
  const minutes = Math.floor(seconds / 60);
  return `${minutes}:${(seconds - 60 * minutes).toFixed(2).padStart(5, "0")}`;
};

// Models and tasks

async function loadModels() {
  models = await (await ask("api/models")).json();
  by("model").replaceChildren(...models.map((model) => element("option", { value: model.id, textContent: model.id })));
  if (models.length === 0) say("There is no model: start the server with --model, or train a run.", true);
  showChoice();
}

function chosen() {
  return models.find((model) => model.id === by("model").value);
}

function showChoice() {
  const model = chosen();
  const tasks = model?.tasks ?? [];
  const options = tasks.map((task) => element("option", { value: task, textContent: task }));
  if (model?.has_router) options.unshift(element("option", { value: "", textContent: "chosen by the router" }));
  by("task").replaceChildren(...options);
  by("task-field").hidden = options.length === 0;
  by("language-field").hidden = by("translate-field").hidden = !model || model.reads_text || model.multilingual === false;
  by("audio-input").hidden = model?.reads_text ?? false;
  by("text-input").hidden = !model?.reads_text;
}

// Recordings

/** The recording that is being transcribed. */
let current = new AbortController();

async function transcribe(file) {
  const model = chosen();
  if (!model) return;
  current.abort();
  const { signal } = (current = new AbortController());
  const form = new FormData();
  form.append("file", file, file.name);
  form.append("model", model.id);
  form.append("words", String(!model.reader));
  if (!by("task-field").hidden && by("task").value) form.append("task", by("task").value);
  if (!by("language-field").hidden) {
    form.append("language", by("language").value.trim());
    form.append("translate", String(by("translate").checked));
  }
  clear();
  by("player").src = URL.createObjectURL(file);
  say(`Sending ${file.name} …`);
  try {
    const started = performance.now();
    const response = await ask("api/transcribe", { method: "POST", body: form, signal });
    for await (const event of lines(response.body)) take(event, started);
  } catch (error) {
    if (!signal.aborted) say(error.message, true);
  }
}

async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const parts = (rest + (value ?? "")).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
    if (done) return;
  }
}

function clear() {
  transcript = outline = null;
  URL.revokeObjectURL(by("player").src);
  by("player").hidden = by("wave").hidden = false;
  by("result").hidden = true;
  for (const id of ["transcript", "answers", "downloads"]) by(id).replaceChildren();
}

function take(event, started) {
  const took = () => (performance.now() - started) / 1000;
  switch (event.event) {
    case "opened":
      outline = event;
      by("result").hidden = false;
      say(`${clock(event.seconds)} of audio …`);
      draw();
      break;
    case "segments":
      by("transcript").append(event.text);
      say(`${clock(event.reached)} of ${clock(outline.seconds)} …`);
      break;
    case "transcript": {
      transcript = event.transcript;
      showTranscript();
      const language = transcript.language ? `, language ${transcript.language}` : "";
      const sure = transcript.language_probability ? ` (${transcript.language_probability.toFixed(2)})` : "";
      say(`${clock(outline.seconds)} read in ${took().toFixed(1)} s${language}${sure}.`);
      break;
    }
    case "predictions":
      showPredictions(event.predictions);
      say(`Answered in ${took().toFixed(1)} s.`);
      break;
    case "failed":
      throw new Error(event.message);
  }
}

function doubt(probability) {
  return probability < 0.3 ? "very-low" : probability < 0.6 ? "low" : "";
}

function showTranscript() {
  const morse = Boolean(chosen()?.reader);
  by("transcript").className = morse ? "morse" : "";
  const segments = transcript.segments.map((segment) => {
    const words = segment.words?.length ? segment.words.map(wordOf) : charactersOf(segment);
    const time = element("span", { className: "time", textContent: clock(segment.start) });
    return element("p", { className: "segment" }, time, element("span", {}, ...words));
  });
  by("transcript").replaceChildren(...segments);
  if (segments.length === 0) by("transcript").textContent = "Nothing was found in this recording.";
  const files = [
    ["txt", transcript.text + "\n"],
    ["json", JSON.stringify(transcript, null, 2)],
  ];
  by("downloads").replaceChildren(...files.flatMap(([kind, text]) => [link(kind, text), " "]));
  draw();
}

function link(kind, text) {
  return element("a", { href: `data:text/plain;charset=utf-8,${encodeURIComponent(text)}`, download: `transcript.${kind}`,
    textContent: kind });
}

function wordOf(word) {
  const node = element("span", { className: `word ${doubt(word.probability)}`, textContent: word.word,
    title: `${word.start.toFixed(2)} to ${word.end.toFixed(2)} s, probability ${word.probability.toFixed(2)}` });
  node.dataset.start = word.start;
  node.dataset.end = word.end;
  return node;
}

// A model without times for words has a confidence for each character.
function charactersOf(segment) {
  return [...segment.text].map((character, at) => {
    const probability = segment.confidence?.[at] ?? 1;
    return element("span", { className: `word ${doubt(probability)}`, textContent: character,
      title: `probability ${probability.toFixed(2)}` });
  });
}

function showPredictions(predictions) {
  by("result").hidden = false;
  by("answers").replaceChildren(...predictions.map((answer) => {
    const gates = Object.entries(answer.gates ?? {}).map(([task, gate]) => element("div", { className: "gate" },
      element("span", { textContent: task }), element("meter", { min: 0, max: 1, value: gate }),
      element("span", { textContent: gate.toFixed(2) })));
    const sure = answer.confidence === undefined ? "" : `, confidence ${answer.confidence.toFixed(2)}`;
    const unread = answer.cut ? `, without the last ${answer.cut} tokens, for the text is too long` : "";
    const head = element("p", { className: "time", textContent: `${clock(answer.start)} ${answer.task}${sure}${unread}` });
    const text = answer.none ? "none of the tasks" : answer.text;
    return element("div", { className: "answer" }, head, element("p", { textContent: text }), ...gates);
  }));
}

// Waveform, with the marks of Morse below it

function draw() {
  const canvas = by("wave");
  if (!outline || canvas.clientWidth === 0) return;
  const scale = devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = 120 * scale;
  const style = getComputedStyle(document.body);
  const [accent, soft] = ["--accent", "--soft"].map((name) => style.getPropertyValue(name));
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  const keyed = outline.marks.length > 0;
  const middle = keyed ? height * 0.4 : height / 2;
  const most = Math.max(1e-6, ...outline.peaks);
  context.fillStyle = soft;
  for (let x = 0; x < width; x++) {
    const [first, end] = [x, x + 1].map((x) => Math.floor((x / width) * outline.peaks.length));
    const peak = Math.max(...outline.peaks.slice(first, Math.max(end, first + 1))) / most;
    context.fillRect(x, middle - peak * middle * 0.95, 1, Math.max(1, 2 * peak * middle * 0.95));
  }
  context.fillStyle = accent;
  for (const [start, end] of outline.marks) {
    const [left, right] = [start, end].map((seconds) => (seconds / outline.seconds) * width);
    context.fillRect(left, height * 0.84, Math.max(1, right - left), height * 0.12);
  }
  const now = (by("player").currentTime / outline.seconds) * width;
  context.fillRect(now, 0, Math.max(1, scale), height);
}

function follow() {
  const now = by("player").currentTime;
  for (const word of document.querySelectorAll(".word[data-start]")) {
    word.classList.toggle("now", now >= Number(word.dataset.start) && now < Number(word.dataset.end));
  }
  draw();
}

// Recording, as 16-bit WAV: what browsers compress with, the server may not read.

let recording = null;

async function record() {
  if (recording) return recording.stop();
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    const recorder = new MediaRecorder(stream);
    const parts = [];
    recorder.ondataavailable = (event) => parts.push(event.data);
    recorder.onstop = async () => {
      recording = null;
      by("record").classList.remove("on");
      by("record").textContent = "record";
      stream.getTracks().forEach((track) => track.stop());
      const context = new AudioContext({ sampleRate: 16000 });
      const audio = await context.decodeAudioData(await new Blob(parts).arrayBuffer());
      await context.close();
      transcribe(new File([wav(audio.getChannelData(0), audio.sampleRate)], "recording.wav", { type: "audio/wav" }));
    };
    recorder.start();
    recording = recorder;
    by("record").classList.add("on");
    by("record").textContent = "stop";
    say("Recording …");
  } catch (error) {
    say(`The microphone cannot be used: ${error.message}`, true);
  }
}

function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF"); view.setUint32(4, 36 + 2 * samples.length, true); text(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, rate, true); view.setUint32(28, 2 * rate, true); view.setUint16(32, 2, true);
  view.setUint16(34, 16, true); text(36, "data"); view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, i) => view.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, sample)) * 32767, true));
  return view.buffer;
}

// Texts

async function answerText() {
  const body = { model: by("model").value, text: by("text").value, context: by("context").value || null,
    task: by("task-field").hidden ? null : by("task").value || null };
  clear();
  by("player").hidden = by("wave").hidden = true;
  say("Reading …");
  try {
    const started = performance.now();
    const response = await ask("api/predict", { method: "POST", body: JSON.stringify(body) });
    take({ event: "predictions", predictions: await response.json() }, started);
  } catch (error) {
    say(error.message, true);
  }
}

// Runs

let shown = null;
let timer = null;

async function loadRuns() {
  const runs = await (await ask("api/runs")).json();
  const left = (run) => (run.state === "running" && run.eta_seconds ? `${Math.ceil(run.eta_seconds / 60)} min` : "");
  const rows = runs.map((run) => {
    const open = element("button", { type: "button", textContent: run.run });
    const cells = [run.state, run.stage ?? "", `${run.step ?? 0}${run.steps ? ` of ${run.steps}` : ""}`,
      run.train?.loss?.toFixed(4) ?? "", left(run)];
    const row = element("tr", { className: run.run === shown ? "chosen" : "" }, element("td", {}, open),
      ...cells.map((text) => element("td", { textContent: text })));
    row.onclick = () => { shown = run.run; loadRuns(); };
    return row;
  });
  by("run-list").tBodies[0].replaceChildren(...rows);
  if (runs.length === 0) {
    by("run-list").tBodies[0].append(element("tr", {}, element("td", { colSpan: 6, textContent: "There are no runs yet." })));
  }
  shown ??= runs[0]?.run ?? null;
  if (shown) await loadRun(shown);
}

async function loadRun(name) {
  const run = await (await ask(`api/runs/${encodeURIComponent(name)}`)).json();
  by("run").hidden = false;
  by("run-name").textContent = run.stage ? `${run.run}, ${run.stage}` : run.run;
  by("advice").replaceChildren(...run.recommendations.map((one) => element("li", { textContent: one.text })));
  by("curves").replaceChildren(...run.curves.filter((curve) => curve.points.length > 1).map(curveOf));
}

function curveOf(curve) {
  const [width, height] = [300, 140];
  const [steps, values] = [0, 1].map((at) => curve.points.map((point) => point[at]));
  const [first, last, low, high] = [Math.min(...steps), Math.max(...steps), Math.min(...values), Math.max(...values)];
  const x = (step) => 8 + ((step - first) / (last - first || 1)) * (width - 16);
  const y = (value) => height - 18 - ((value - low) / (high - low || 1)) * (height - 34);
  const node = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const line = node("polyline", { points: curve.points.map(([step, value]) => `${x(step)},${y(value)}`).join(" ") });
  const short = (number) => Number(number.toPrecision(4)).toString();
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(line, node("text", { x: 8, y: 12 }, short(high)), node("text", { x: 8, y: height - 4 }, short(low)),
    node("text", { x: width - 8, y: height - 4, "text-anchor": "end" }, `step ${last}`));
  const now = short(values[values.length - 1]);
  return element("figure", {}, element("figcaption", { textContent: `${curve.name} (${curve.split}): ${now}` }), svg);
}

// Views

function show(view) {
  for (const name of ["listen", "runs"]) {
    by(name).hidden = name !== view;
    by(`tab-${name}`).setAttribute("aria-selected", String(name === view));
  }
  clearInterval(timer);
  const look = () => loadRuns().catch((error) => say(error.message, true));
  if (view === "runs") {
    look();
    timer = setInterval(look, 3000);
  }
}

by("tab-listen").onclick = () => show("listen");
by("tab-runs").onclick = () => show("runs");
by("model").onchange = showChoice;
by("choice").onsubmit = (event) => event.preventDefault();
by("file").onchange = () => by("file").files[0] && transcribe(by("file").files[0]);
by("record").onclick = record;
by("ask").onclick = answerText;
by("player").ontimeupdate = follow;
by("wave").onclick = (event) => {
  if (!outline) return;
  by("player").currentTime = (event.offsetX / by("wave").clientWidth) * outline.seconds;
  by("player").play();
};
by("transcript").onclick = (event) => {
  const start = event.target.dataset?.start;
  if (start === undefined) return;
  by("player").currentTime = Number(start);
  by("player").play();
};
addEventListener("resize", draw);
for (const name of ["dragover", "dragleave", "drop"]) {
  by("drop").addEventListener(name, (event) => {
    event.preventDefault();
    by("drop").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files[0]) transcribe(event.dataTransfer.files[0]);
  });
}
loadModels().catch((error) => say(error.message, true));
