// The views of a plan, drawn anew for each plan that is chosen.

function legend(target, ...items) { byId(target).replaceChildren(...items.filter((item) => item)); }
function swatch(style, text) { return make("span", {}, make("i", style), text); }
const KINDS = ["jit", "library", "custom", "copy", "nested"];
function kindSwatches(plan) {
  const used = new Set(plan.kernels.map((kernel) => kernel.kind));
  return KINDS.filter((kind) => used.has(kind))
    .map((kind) => swatch({ style: `background: var(--${kind})` }, `${kind} kernel`));
}

// ---- graph ----

let graphScale = 1;
let graphSize = { width: 1, height: 1, top: 0 };  // top: where the first node is, from the left
let drawnEdges = [];  // {from, to, element}: names of nodes

/// Nodes, and a pill for each output and each input that is written back.
function drawnNodes() {
  const fixed = byId("graph-fixed").checked;
  const nodes = index.graph.nodes
    .filter((node) => fixed || (node.op !== "param" && node.op !== "const"))
    .map((node) => ({ key: node.name, kind: "node", title: node.text,
      label: node.label && node.label !== node.name ? `${node.op} ${node.label}` : node.op, below: node.name, type: node.types.join(" "), node,
      reads: node.inputs.map((value) => index.maker.get(value)),
      after: node.after.map((value) => index.maker.get(value)) }));
  const pill = (label, value) => nodes.push({ key: index.maker.get(value), pill: true, kind: "node", title: label,
    label, below: plain(value), reads: [index.maker.get(value)], after: [] });
  index.graph.outputs.forEach((output, k) => pill(output.label ? `output ${output.label}` : `output ${k}`, output.value));
  for (const write of index.graph.write_backs) pill(`write back ${plain(write.target)}`, write.source);
  for (const node of nodes)
    node.width = Math.max(...linesOf(node).map((line) => line.length)) * 7 + 22;
  return nodes;
}

/// What a box says: the op, what its result is called, what that is. Of a long name the end tells most.
function linesOf(node) {
  const name = node.below.length > 24 ? "…" + node.below.slice(-23) : node.below;
  return [clipped(node.label, 24), name, ...(node.type ? [clipped(node.type, 24)] : [])];
}

const HALF = 26;  // of the height of a node

function drawGraph() {
  const nodes = drawnNodes();
  const place = new Map();
  nodes.forEach((node, k) => node.pill || place.set(node.key, k));
  const edges = [];
  nodes.forEach((node, k) => {
    for (const from of new Set(node.reads)) if (place.has(from)) edges.push([place.get(from), k, false]);
    for (const from of new Set(node.after)) if (place.has(from)) edges.push([place.get(from), k, true]);
  });
  const layout = layoutGraph(nodes, edges);
  graphSize = { width: layout.width, height: layout.height, top: layout.at[0]?.x ?? 0 };
  const svg = make("svg:svg", { viewBox: `0 0 ${layout.width} ${layout.height}`, role: "group",
    "aria-label": "Graph: one button a node" });
  svg.append(make("svg:defs", {}, arrow("arrow", "var(--edge)"), arrow("arrow-weak", "var(--weak)")));
  drawnEdges = edges.map(([from, to, weak], e) => {
    const element = make("svg:path", { class: weak ? "edge weak" : "edge", d: edgePath(layout.paths[e]),
      "marker-end": weak ? "url(#arrow-weak)" : "url(#arrow)" });
    svg.append(element);
    return { from: nodes[from].key, to: nodes[to].key, element };
  });
  const elements = nodes.map((node, k) => drawNode(svg, node, layout.at[k]));
  roving(elements, graphKeys(nodes, edges, layout, elements));
  byId("graph").replaceChildren(svg);
  drawGraphLegend(edges.some(([, , weak]) => weak));
}

function arrow(id, colour) {
  return make("svg:marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9,
    markerUnits: "userSpaceOnUse", orient: "auto" },
    make("svg:path", { d: "M0,0L8,4L0,8z", style: `fill: ${colour}` }));
}

/// Bends between the rows, straight down through them.
function edgePath(points) {
  let path = `M${points[0].x},${points[0].y + HALF}`;
  points.slice(1).forEach((to, k) => {
    const from = points[k];
    const top = from.y + HALF;
    const bottom = to.y - HALF;
    const middle = (top + bottom) / 2;
    path += `C${from.x},${middle} ${to.x},${middle} ${to.x},${bottom}`;
    if (k < points.length - 2) path += `V${to.y + HALF}`;
  });
  return path;
}

function drawNode(svg, node, at) {
  const kernel = node.node ? index.kernels.get(index.kernelOf.get(node.key)) : undefined;
  const region = node.node ? index.regions.indexOf(node.node.region) : -1;
  const tint = region < 0 ? undefined : `fill: hsl(${hueOf(region)} var(--tint))`;
  const lines = linesOf(node);
  const box = make("svg:rect", { class: "box", x: at.x - node.width / 2, y: at.y - HALF, width: node.width,
    height: 2 * HALF, rx: node.pill ? HALF : 5, style: tint });
  const group = make("svg:g", { class: `thing ${kernel ? "kind-" + kernel.kind : node.node?.op ?? ""}`, role: "button", "data-find": `${node.label} ${node.below}`,
    "aria-label": `${node.label} ${node.below}${kernel ? ", kernel " + kernel.name : ""}` },
    make("svg:title", {}, node.title), box,
    ...lines.map((line, k) => make("svg:text", { x: at.x, y: at.y + 4 + 15 * (k - (lines.length - 1) / 2),
      "text-anchor": "middle", class: k > 0 && "small", "font-weight": k === 0 && "bold" }, line)));
  if (region >= 0 && kernel)
    group.append(make("svg:rect", { x: at.x - node.width / 2 + 1, y: at.y - HALF + 1, width: 6, height: 2 * HALF - 2, rx: 3,
      style: `fill: var(--${kernel.kind})`, "pointer-events": "none" }));
  svg.append(group);
  return selectable(node.kind, node.key, group);
}

function graphKeys(nodes, edges, layout, elements) {
  const reading = nodes.map((_, k) => k)
    .sort((a, b) => layout.at[a].y - layout.at[b].y || layout.at[a].x - layout.at[b].x);
  const place = new Map(reading.map((k, at) => [k, at]));
  const first = nodes.map(() => ({}));
  for (const [from, to] of edges) {
    first[to].up ??= from;
    first[from].down ??= to;
  }
  const number = new Map(elements.map((element, k) => [element, k]));
  return (element, key) => {
    const k = number.get(element);
    const at = place.get(k);
    const target = { ArrowUp: first[k].up, ArrowDown: first[k].down, ArrowLeft: reading[at - 1],
      ArrowRight: reading[at + 1], Home: reading[0], End: reading[reading.length - 1] }[key];
    return target === undefined ? null : elements[target];
  };
}

function drawGraphLegend(weak) {
  const regions = index.regions.map((name, k) => {
    const id = index.plan.regions?.find((region) => region.name === name)?.id ?? name;
    return selectable("region", name, make("button", { type: "button" },
      make("i", { style: `background: hsl(${hueOf(k)} var(--tint))` }), `region ${id}`));
  });
  legend("graph-legend", ...regions, ...kindSwatches(index.plan), swatch({ class: "solid" }, "reads"),
    weak ? swatch({ class: "dash" }, "only after (weak)") : null);
}

function scaleGraph(scale) {
  graphScale = Math.min(Math.max(scale, 0.15), 3);
  const svg = byId("graph").firstElementChild;
  svg.setAttribute("width", graphSize.width * graphScale);
  svg.setAttribute("height", graphSize.height * graphScale);
}
function fitGraph(least) {
  const room = byId("graph").clientWidth - 4;
  scaleGraph(Math.max(Math.min(room / graphSize.width, 1), least));
  byId("graph").scrollTop = 0;
  byId("graph").scrollLeft = graphSize.top * graphScale - room / 2;
}

function markEdges(related) {
  for (const edge of drawnEdges)
    edge.element.classList.toggle("related", selected.kind === "node"
      ? edge.from === selected.key || edge.to === selected.key
      : related.node.has(edge.from) && related.node.has(edge.to));
  for (const edge of stepEdges) {
    const near = related.step.has(edge.to) || related.step.has(edge.from);
    edge.element.classList.toggle("related", near);
    edge.element.style.display = edge.weak || near || stepEdges.length < 40 ? "" : "none";
  }
}

// ---- kernels ----

function drawKernels() {
  const list = byId("kernels");
  list.replaceChildren();
  const buttons = [];
  for (const kernel of index.plan.kernels) {
    const steps = index.stepsOf.get(kernel.name);
    const button = selectable("kernel", kernel.name,
      make("button", { type: "button", class: `mono kind-${kernel.kind}` }, kernel.name));
    buttons.push(button);
    const region = index.plan.regions?.find((other) => other.name === kernel.region)?.id ?? kernel.region;
    list.append(make("li", {}, button, make("span", {}, kernel.kind), make("span", {}, region ? `region ${region}` : ""),
      make("span", {}, `${steps.length === 1 ? "step" : "steps"} ${steps.join(" ")} · ${kernel.nodes.length} ${kernel.nodes.length === 1 ? "node" : "nodes"}`)));
  }
  const keys = along(buttons);
  for (const button of buttons)
    button.addEventListener("keydown", (event) => {
      const target = keys(button, event.key);
      if (!target) return;
      event.preventDefault();
      target.focus();
    });
}

// ---- schedule and memory ----

const LANE = 30;
const ARCS = 44;
const MAP = 300;
let stepWidth = 24;
let stepEdges = [];  // {from, to, weak, element}

function streamsOf(plan) { return plan.steps.reduce((most, step) => Math.max(most, step.stream + 1), 1); }

/// Bytes of the arena that are in use at a step; buffers in place of each other count once.
function bytesInUse(plan, step) {
  const ranges = plan.buffers
    .filter((buffer) => buffer.offset !== null && buffer.first_step !== null &&
      buffer.first_step <= step && step <= buffer.last_step)
    .map((buffer) => [buffer.offset, buffer.offset + buffer.bytes]).sort((a, b) => a[0] - b[0]);
  let bytes = 0;
  let end = 0;
  for (const [from, to] of ranges) {
    bytes += Math.max(to - Math.max(from, end), 0);
    end = Math.max(end, to);
  }
  return bytes;
}

function drawTime() {
  const plan = index.plan;
  const streams = streamsOf(plan);
  byId("time-hint").textContent = "Steps run to the right; " + (streams > 1
    ? "a stream waits for another one only where an edge leads there"
    : "those on one band of ground may run together") + ". Addresses of the arena run upwards.";
  const top = ARCS + streams * LANE + 24;
  const width = Math.max(plan.steps.length * stepWidth, 1);
  const attributes = { width, height: top + MAP + 20, role: "group", "aria-label": "Steps, and the arena below them" };
  const svg = make("svg:svg", attributes);
  drawBands(svg, plan, top);
  drawStepEdges(svg, plan);
  const steps = plan.steps.map((step) => drawStep(svg, step));
  roving(steps, along(steps));
  const live = drawBuffers(svg, plan, top);
  roving(live, along(live));
  const scroll = make("div", {}, svg);
  byId("time").replaceChildren(make("div", { class: "time-rows" }, drawAxis(plan, streams, top), scroll));
  legend("time-legend", ...kindSwatches(plan), swatch({ class: "solid" }, "after"),
    swatch({ class: "dash" }, "only after (weak)"));
}

function drawBands(svg, plan, top) {
  const inStages = streamsOf(plan) === 1;
  for (const step of plan.steps)
    if (inStages && step.stage % 2 === 0)
      svg.append(make("svg:rect", { class: "band", x: step.index * stepWidth, y: 0, width: stepWidth, height: top + MAP }));
  for (let part = 0; part <= 4; ++part) {
    const y = top + MAP * (1 - part / 4);
    svg.append(make("svg:line", { class: "grid", x1: 0, x2: plan.steps.length * stepWidth, y1: y, y2: y }));
  }
  const every = Math.max(Math.ceil(30 / stepWidth), 1);
  for (let k = 0; k < plan.steps.length; k += every)
    svg.append(make("svg:text", { class: "faint", x: (k + 0.5) * stepWidth, y: top + MAP + 14, "text-anchor": "middle" }, k));
}

function stepAt(step) {
  return { x: step.index * stepWidth, y: ARCS + step.stream * LANE };
}

function drawStepEdges(svg, plan) {
  stepEdges = [];
  for (const step of plan.steps)
    for (const edge of step.edges) {
      const to = stepAt(step);
      const from = stepAt(plan.steps[edge.from]);
      const x1 = from.x + stepWidth / 2;
      const x2 = to.x + stepWidth / 2;
      const bow = Math.min(12 + (x2 - x1) / 6, ARCS - 4);
      const weak = edge.kind === "weak";
      const element = make("svg:path", { class: weak ? "edge weak" : "edge",
        d: `M${x1},${from.y + 3}C${x1},${from.y - bow} ${x2},${to.y - bow} ${x2},${to.y + 2}` });
      stepEdges.push({ from: edge.from, to: step.index, weak, element });
      svg.append(element);
    }
  if (stepEdges.length >= 40)
    for (const edge of stepEdges) edge.element.style.display = edge.weak ? "" : "none";
}

function drawStep(svg, step) {
  const at = stepAt(step);
  const kind = index.kernels.get(step.kernel)?.kind ?? "copy";
  const label = stepWidth >= 80 ? step.kernel : stepWidth >= 18 ? String(step.index) : "";
  const group = make("svg:g", { class: `thing kind-${kind}`, role: "button",
    "aria-label": `Step ${step.index}, ${step.kernel}, stream ${step.stream}` },
    make("svg:title", {}, `step ${step.index}: ${step.kernel}, stage ${step.stage}`),
    make("svg:rect", { class: "box", x: at.x + 1, y: at.y + 3, width: Math.max(stepWidth - 2, 1), height: LANE - 6, rx: 3 }));
  if (label)
    group.append(make("svg:text", { x: at.x + stepWidth / 2, y: at.y + LANE / 2 + 4, "text-anchor": "middle" },
      clipped(label, Math.max(Math.floor((stepWidth - 4) / 6.8), 1) + (label.length * 6.8 <= stepWidth ? 2 : 0))));
  svg.append(group);
  return selectable("step", step.index, group);
}

function drawBuffers(svg, plan, top) {
  const peak = Math.max(plan.peak_bytes, 1);
  const shown = plan.buffers.map((buffer, k) => ({ buffer, k }))
    .filter(({ buffer }) => buffer.offset !== null && buffer.first_step !== null && (buffer.alias_of === null || buffer.in_place))
    .sort((a, b) => a.buffer.first_step - b.buffer.first_step || a.buffer.offset - b.buffer.offset);
  return shown.map(({ buffer, k }) => {
    const x = buffer.first_step * stepWidth;
    const width = (buffer.last_step - buffer.first_step + 1) * stepWidth;
    const height = Math.max(buffer.bytes / peak * MAP, 1);
    const y = top + MAP - (buffer.offset + buffer.bytes) / peak * MAP;
    const text = `${buffer.value}: ${buffer.bytes} bytes at ${buffer.offset}, steps ${buffer.first_step} to ${buffer.last_step}`;
    const group = make("svg:g", { class: "thing", role: "button", "aria-label": `Buffer ${text}` },
      make("svg:title", {}, text),
      make("svg:rect", { class: "box", x: x + 0.5, y, width: Math.max(width - 1, 1), height,
        style: `fill: hsl(${hueOf(k)} var(--tint)); fill-opacity: .85` }));
    const room = Math.floor((width - 6) / 6.8);
    if (height >= 13 && room >= 3)
      group.append(make("svg:text", { x: x + 4, y: y + height / 2 + 4 }, clipped(buffer.value, room)));
    svg.append(group);
    return selectable("buffer", k, group);
  });
}

function drawAxis(plan, streams, top) {
  const svg = make("svg:svg", { width: 84, height: top + MAP + 20, "aria-hidden": "true" });
  const text = (y, words) => svg.append(make("svg:text", { x: 78, y, "text-anchor": "end", class: "faint" }, words));
  for (let stream = 0; stream < streams; ++stream) text(ARCS + stream * LANE + LANE / 2 + 4, `stream ${stream}`);
  for (let part = 0; part <= 4; ++part) text(top + MAP * (1 - part / 4) + 4, bytesText(Math.round(plan.peak_bytes * part / 4)));
  text(top + MAP + 15, "step");
  return make("div", {}, svg);
}

function scaleTime(width) {
  stepWidth = Math.min(Math.max(width, 2), 160);
  things = things.filter((thing) => thing.kind !== "step" && thing.kind !== "buffer");
  drawTime();
  if (selected) select(selected.kind, selected.key);
}
function fittingStepWidth() {
  const steps = Math.max(index.plan.steps.length, 1);
  return Math.max(Math.floor((byId("time").clientWidth - 100) / steps), 2);
}

// ---- tables ----

function tableOf(title, columns, rows) {
  const cell = (value) => make("td", { class: typeof value === "number" ? "number" : undefined },
    value === null || value === undefined ? "" : Array.isArray(value)
      ? value.map((item) => (typeof item === "object" ? `${item.from}${item.kind === "weak" ? " (weak)" : ""}` : item)).join(" ")
      : typeof value === "object" ? JSON.stringify(value) : String(value));
  const body = rows.map((row) => make("tr", {}, ...columns.map((key) => cell(row[key]))));
  return make("details", {}, make("summary", {}, `${title} (${rows.length})`),
    make("div", { tabindex: "0", role: "group", "aria-label": title }, make("table", {},
    make("tr", {}, ...columns.map((key) => make("th", { scope: "col" }, key.replace("_", " ")))), ...body)));
}

function drawTables() {
  const plan = index.plan;
  const guards = (plan.guards ?? []).map((guard) => ({ guard }));
  const tables = [tableOf("Order", ["index", "kernel", "stream", "stage", "waits_for", "edges"], plan.steps),
    tableOf("Buffers", ["value", "role", "bytes", "offset", "first_step", "last_step", "alias_of"], plan.buffers)];
  if (plan.guards) tables.unshift(tableOf("Guards", ["guard"], guards), tableOf("Regions", ["id", "options", "nodes"], plan.regions));
  if (plan.events) tables.push(tableOf("Events", ["step", "kind", "value", "bytes"], plan.events));
  if (plan.passes) tables.push(tableOf("Passes", ["name", "microseconds", "changed", "nodes_before", "nodes_after", "inferred"], plan.passes));
  byId("tables").replaceChildren(...tables);
}

// ---- the page ----

function showPlan(number) {
  const { plan } = plans[number];
  things = [];
  selected = null;
  index = new Index(plan, graphOf(plan));
  byId("graph-fixed").checked = index.graph.nodes.length <= 40;
  drawGraph();
  fitGraph(0.55);
  drawKernels();
  stepWidth = Math.min(Math.max(fittingStepWidth(), 14), 120);
  drawTime();
  drawTables();
  byId("summary").textContent = `${index.graph.nodes.length} nodes, ${plan.kernels.length} kernels, ` +
    `${plan.steps.length} steps, ` + (streamsOf(plan) > 1 ? `${streamsOf(plan)} streams`
      : `${plan.steps.length === 0 ? 0 : plan.steps[plan.steps.length - 1].stage + 1} stages`);
  byId("memory-summary").textContent = `Arena: ${bytesText(plan.peak_bytes)} (${plan.peak_bytes} bytes) at most, ` +
    `${plan.lower_bound_bytes} bytes needed at least. Order: ${plan.order.method}.`;
  byId("details").replaceChildren(make("h2", {}, "Details"), make("p", {},
    "Choose a node, a kernel, a step or a buffer: what belongs to it is marked in every view, and shown here."));
}

/// As if the user had chosen it at the top, where the focus goes.
function choosePlan(number) {
  byId("plan-select").value = number;
  showPlan(number);
  byId("plan-select").focus();
}

function find(text) {
  const words = text.trim().toLowerCase();
  let count = 0;
  let first = null;
  for (const thing of things) {
    if (thing.kind !== "node" && thing.kind !== "kernel") continue;
    const name = thing.element.dataset.find ?? thing.element.textContent;
    const match = words !== "" && name.toLowerCase().includes(words);
    thing.element.classList.toggle("match", match);
    count += match ? 1 : 0;
    if (match) first ??= thing;
  }
  byId("find-count").textContent = words === "" ? "" : `${count} found`;
  return first;
}

function start() {
  byId("graph-text").textContent = source.graph;
  plans.forEach(({ label }, k) => byId("plan-select").append(make("option", { value: k }, label)));
  byId("plan-choice").hidden = plans.length === 1;
  byId("plan-select").addEventListener("change", (event) => showPlan(Number(event.target.value)));
  byId("graph-in").addEventListener("click", () => scaleGraph(graphScale * 1.3));
  byId("graph-out").addEventListener("click", () => scaleGraph(graphScale / 1.3));
  byId("graph-fit").addEventListener("click", () => fitGraph(0));
  byId("graph-fixed").addEventListener("change", () => {
    things = things.filter((thing) => thing.kind !== "node" && thing.kind !== "region");
    drawGraph();
    fitGraph(0.55);
    if (selected) select(selected.kind, selected.key);
  });
  byId("time-in").addEventListener("click", () => scaleTime(stepWidth * 1.5));
  byId("time-out").addEventListener("click", () => scaleTime(stepWidth / 1.5));
  byId("time-fit").addEventListener("click", () => scaleTime(fittingStepWidth()));
  byId("find").addEventListener("input", (event) => find(event.target.value));
  byId("find").addEventListener("keydown", (event) => {
    const first = event.key === "Enter" ? find(event.target.value) : null;
    if (first) select(first.kind, first.key, true);
  });
  const themes = ["system", "light", "dark"];
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const next = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    byId("theme").textContent = `Theme: ${next}`;
  });
  showPlan(0);
}

start();
