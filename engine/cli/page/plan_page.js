// The page of `heddle plan --html`: one selection, shown in the graph, the kernels, the schedule, the
// memory map and the details at once.
"use strict";

const source = JSON.parse(document.getElementById("plan-data").textContent);
const SVG = Object.assign(document.createElement("template"), { innerHTML: "<svg></svg>" })
  .content.firstChild.namespaceURI;

function make(name, attributes = {}, ...children) {
  const element = name.startsWith("svg:")
    ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") element.addEventListener("click", value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}
const byId = (id) => document.getElementById(id);
const plain = (value) => value.replace(/^%/, "");
const clipped = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), 4);
  return `${(bytes / 2 ** (10 * power)).toFixed(1)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
const hueOf = (k) => Math.round((k * 137.508) % 360);

// ---- one plan: the whole, or one that a step runs ----

function plansOf(plan, label, list = []) {
  list.push({ label, plan });
  for (const step of plan.steps)
    for (const inner of (step.nested ?? []).filter((inner) => inner.same_as === undefined))
      plansOf(inner, `${label} › step ${step.index} › ${inner.graph}`, list);
  return list;
}

/// What refers to what in a plan.
class Index {
  constructor(plan, graph) {
    this.plan = plan;
    this.graph = graph;
    this.kernels = new Map(plan.kernels.map((kernel) => [kernel.name, kernel]));
    this.stepsOf = new Map(plan.kernels.map((kernel) => [kernel.name, []]));
    for (const step of plan.steps) this.stepsOf.get(step.kernel)?.push(step.index);
    this.kernelOf = new Map();
    for (const kernel of plan.kernels)
      for (const node of kernel.nodes) if (!this.kernelOf.has(node)) this.kernelOf.set(node, kernel.name);
    this.nodes = new Map(graph.nodes.map((node) => [node.name, node]));
    this.maker = new Map();
    for (const node of graph.nodes) for (const name of node.names) this.maker.set(name, node.name);
    this.users = new Map();
    for (const node of graph.nodes)
      for (const value of node.inputs) {
        const from = this.maker.get(value);
        if (!this.users.has(from)) this.users.set(from, []);
        this.users.get(from).push(node.name);
      }
    this.regions = [...new Set(graph.nodes.map((node) => node.region).filter((name) => name !== ""))];
  }
  /// Everything that `kind` `key` is about: {kernel, node, step, buffer}, sets of keys.
  related(kind, key) {
    const found = { kernel: new Set(), node: new Set(), step: new Set(), buffer: new Set(), region: new Set() };
    const addKernel = (name) => {
      if (!this.kernels.has(name)) return;
      found.kernel.add(name);
      for (const node of this.kernels.get(name).nodes) found.node.add(node);
      for (const step of this.stepsOf.get(name)) found.step.add(step);
      addValues([...this.kernels.get(name).reads, ...this.kernels.get(name).writes]);
    };
    const addValues = (values) => {
      const names = new Set(values.map(plain));
      this.plan.buffers.forEach((buffer, k) => names.has(plain(buffer.value)) && found.buffer.add(k));
    };
    if (kind === "kernel") addKernel(key);
    if (kind === "node") {
      found.node.add(key);
      if (this.kernelOf.has(key)) addKernel(this.kernelOf.get(key));
      addValues(this.nodes.get(key)?.names ?? []);
    }
    if (kind === "step") {
      addKernel(this.plan.steps[key].kernel);
      found.step.add(key);
    }
    if (kind === "buffer") {
      const value = plain(this.plan.buffers[key].value);
      found.buffer.add(key);
      for (const kernel of this.plan.kernels)
        if ([...kernel.reads, ...kernel.writes].map(plain).includes(value)) found.kernel.add(kernel.name);
      for (const name of found.kernel) for (const step of this.stepsOf.get(name)) found.step.add(step);
      const node = this.maker.get("%" + value);
      if (node !== undefined) found.node.add(node);
    }
    if (kind === "region") {
      found.region.add(key);
      for (const node of this.graph.nodes) if (node.region === key) found.node.add(node.name);
      for (const kernel of this.plan.kernels)
        if (kernel.unit === key) {
          found.kernel.add(kernel.name);
          for (const step of this.stepsOf.get(kernel.name)) found.step.add(step);
        }
    }
    return found;
  }
}

const plans = plansOf(source.plan, "main");
let index = null;
let things = [];  // {kind, key, element}: what can be selected
let selected = null;

function graphOf(plan) {
  const name = plan.graph?.replace(/^@/, "");
  const found = source.plan.graphs.find((graph) => graph.name.replace(/^@/, "") === name);
  return plan === source.plan ? source.plan.graphs[0]
    : found ?? { name: name ?? "", inputs: [], outputs: [], write_backs: [], nodes: [] };
}

/// Makes `element` something that a click, Enter or Space selects.
function selectable(kind, key, element) {
  things.push({ kind, key, element });
  element.addEventListener("click", () => select(kind, key));
  if (element.tagName !== "BUTTON")
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      select(kind, key);
    });
  return element;
}

/// A group with one tab stop; `next(element, key)` is where a key leads from an element.
function roving(elements, next) {
  const stop = (element) => {
    for (const other of elements) other.setAttribute("tabindex", other === element ? "0" : "-1");
  };
  if (elements.length > 0) stop(elements[0]);
  for (const element of elements) {
    element.addEventListener("focus", () => stop(element));
    element.addEventListener("keydown", (event) => {
      const target = next(element, event.key);
      if (!target) return;
      event.preventDefault();
      target.focus();
      target.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }
}

/// Next and previous, first and last of a list by the arrow keys.
function along(elements) {
  return (element, key) => {
    const at = elements.indexOf(element);
    if (key === "ArrowRight" || key === "ArrowDown") return elements[at + 1];
    if (key === "ArrowLeft" || key === "ArrowUp") return elements[at - 1];
    if (key === "Home") return elements[0];
    if (key === "End") return elements[elements.length - 1];
    return null;
  };
}

function select(kind, key, reveal = false) {
  selected = { kind, key };
  const related = index.related(kind, key);
  for (const thing of things) {
    const own = thing.kind === kind && thing.key === key;
    thing.element.setAttribute("aria-pressed", own ? "true" : "false");
    (thing.element.closest("#kernels li") ?? thing.element)
      .classList.toggle("related", related[thing.kind].has(thing.key));
    if (own && reveal) thing.element.scrollIntoView({ block: "center", inline: "center" });
  }
  markEdges(related);
  showDetails(kind, key);
}

// ---- details ----

function links(kind, keys, label = (key) => String(key)) {
  const known = [...new Set(keys)];
  if (known.length === 0) return [document.createTextNode("none")];
  return known.map((key) => make("button",
    { type: "button", class: "link mono", click: () => select(kind, key, true) }, label(key)));
}

function valueLinks(values) {
  const known = [...new Set(values)];
  if (known.length === 0) return [document.createTextNode("none")];
  return known.map((value) => {
    const name = "%" + plain(value);
    const node = index.maker.get(name);
    return node === undefined ? make("code", {}, plain(value) + " ")
      : make("button", { type: "button", class: "link mono", click: () => select("node", node, true) }, name);
  });
}

/// Buttons that open the plans which steps run, each once: one that several run is listed once under “Plan”.
function nestedLinks(steps) {
  const nested = steps.flatMap((k) => index.plan.steps[k].nested ?? []);
  const ids = [...new Set(nested.map((inner) => inner.id ?? inner.same_as))];
  return ids.map((id) => {
    const k = plans.findIndex(({ plan }) => plan.id === id);
    return make("button", { type: "button", class: "link mono", click: () => choosePlan(k) }, plans[k].plan.graph);
  });
}

function facts(rows) {
  const list = make("dl");
  for (const [name, ...parts] of rows) {
    const items = parts.flat().filter((part) => part !== undefined && part !== "");
    if (items.length > 0) list.append(make("dt", {}, name), make("dd", {}, ...items.map(asNode)));
  }
  return list;
}
const asNode = (part) => (part instanceof Node ? part : document.createTextNode(String(part)));

function sourceOf(kernel) {
  if (kernel.source) return make("pre", { tabindex: "0", class: "source", "aria-label": `Source of ${kernel.name}` },
    kernel.source);
  return make("p", { class: "source" }, {
    library: "A call of a library kernel; there is no source to show.",
    custom: "A kernel of the embedder; there is no source to show.",
    nested: "Runs nested plans; choose one here or under “Plan” at the top.",
  }[kernel.kind] ?? "No source.");
}

const views = {
  kernel(name) {
    const kernel = index.kernels.get(name);
    return [make("h2", { class: "mono" }, name), facts([
      ["kind", kernel.kind], ["region", regionLinks(kernel.unit)],
      ["steps", links("step", index.stepsOf.get(name))],
      ["runs", nestedLinks(index.stepsOf.get(name))],
      ["reads", valueLinks(kernel.reads)], ["writes", valueLinks(kernel.writes)],
      ["nodes", valueLinks(kernel.nodes)]]),
    make("h3", {}, kernel.source ? "Source: its loops, for any target" : "Source"), sourceOf(kernel),
    ...(kernel.cuda ? [make("h3", {}, "As CUDA C++"),
      make("pre", { tabindex: "0", "aria-label": `CUDA C++ of ${name}` }, kernel.cuda)] : [])];
  },
  node(name) {
    const node = index.nodes.get(name);
    const kernel = index.kernelOf.get(name);
    return [make("h2", { class: "mono" }, `%${name}`), make("pre", { tabindex: "0" }, node.text), facts([
      ["op", node.op], ["type", node.types.join(", ")], ["region", regionLinks(node.region)],
      ["kernel", kernel ? links("kernel", [kernel]) : "none of its own"],
      ["reads", valueLinks(node.inputs)], ["used by", links("node", index.users.get(name) ?? [], (n) => "%" + n)],
      ["runs after (weak)", node.after.length > 0 ? valueLinks(node.after) : ""]])];
  },
  step(k) {
    const step = index.plan.steps[k];
    const from = (kind) => links("step", step.edges.filter((edge) => edge.kind === kind).map((edge) => edge.from));
    return [make("h2", {}, `Step ${k}`), facts([
      ["kernel", links("kernel", [step.kernel])], ["runs", nestedLinks([k])],
      ["stream", step.stream], ["stage", step.stage],
      ["after", from("strong")], ["after (weak)", from("weak")],
      ["waits for", step.waits_for.length > 0 ? links("step", step.waits_for) : ""],
      ["followed by", links("step", index.plan.steps.filter((other) =>
        other.edges.some((edge) => edge.from === k)).map((other) => other.index))],
      ["phase", step.phase > 0 ? `${step.phase}: bound when its sizes are known` : ""],
      ["arena in use", bytesText(bytesInUse(index.plan, k))],
      ["operations", step.work ?? "known when it runs"]])];
  },
  buffer(k) {
    const buffer = index.plan.buffers[k];
    return [make("h2", { class: "mono" }, buffer.value), facts([
      ["role", buffer.role], ["bytes", buffer.bytes === null ? "known when it runs" : `${buffer.bytes} (${bytesText(buffer.bytes)})`],
      ["offset", buffer.offset === null ? "not in the arena" : buffer.offset],
      ["live", buffer.first_step === null ? "" : `steps ${buffer.first_step} to ${buffer.last_step}`],
      ["alias of", buffer.alias_of ?? ""], ["made by", valueLinks([buffer.value])]])];
  },
  region(name) {
    const region = index.plan.regions?.find((other) => other.name === name);
    return [make("h2", { class: "mono" }, `Region ${region?.id ?? name}`), facts([
      ["options", JSON.stringify(region?.options ?? {})],
      ["fell back", region?.fell_back ? "yes: runs op by op" : ""],
      ["kernels", links("kernel", [...index.related("region", name).kernel])],
      ["nodes", links("node", [...index.related("region", name).node], (n) => "%" + n)]])];
  },
};
function regionLinks(name) {
  return name === "" ? "" : links("region", [name], (key) =>
    index.plan.regions?.find((region) => region.name === key)?.id ?? key);
}

function showDetails(kind, key) {
  byId("details").replaceChildren(...views[kind](key));
  byId("details").scrollTop = 0;
}
