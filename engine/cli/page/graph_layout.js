// Places the nodes of an acyclic graph in rows so that every edge leads downwards.
//
// nodes: [{width}], in an order in which edges lead from earlier nodes to later ones.
// edges: [[from, to]] as positions in `nodes`.
// Returns {at: [{x, y}], paths: [[{x, y}…]], width, height}: centres of the nodes, and for each edge
// the points it passes.
//
// The stages are those of Sugiyama, Tagawa and Toda (1981): rows by longest path, an order in each
// row by barycentres, then x by least squares under that order (pool adjacent violators).
function layoutGraph(nodes, edges) {
  const ROW = 88;
  const GAP = 16;
  const layer = rowsOf(nodes.length, edges);
  const items = nodes.map((node, k) => ({ width: node.width, row: layer[k], up: [], down: [] }));
  const routes = routeEdges(items, edges);
  const rows = [];
  items.forEach((item, k) => (rows[item.row] ??= []).push(k));
  for (let k = 0; k < rows.length; ++k) rows[k] ??= [];
  orderRows(items, rows);
  placeRows(items, rows, GAP);
  const left = Math.min(...items.map((item) => item.x - item.width / 2), 0);
  const point = (k) => ({ x: items[k].x - left + GAP, y: items[k].row * ROW + ROW / 2 });
  return {
    at: nodes.map((_, k) => point(k)),
    paths: routes.map((route) => route.map(point)),
    width: Math.max(...items.map((item) => item.x + item.width / 2), 0) - left + 2 * GAP,
    height: rows.length * ROW,
  };
}

/// A node lies one row below the lowest of what it reads; one that reads nothing, above its first reader.
function rowsOf(count, edges) {
  const reads = Array.from({ length: count }, () => []);
  const readers = Array.from({ length: count }, () => []);
  for (const [from, to] of edges) {
    reads[to].push(from);
    readers[from].push(to);
  }
  const row = new Array(count).fill(0);
  for (let k = 0; k < count; ++k) for (const from of reads[k]) row[k] = Math.max(row[k], row[from] + 1);
  for (let k = 0; k < count; ++k)
    if (reads[k].length === 0 && readers[k].length > 0)
      row[k] = Math.max(0, Math.min(...readers[k].map((to) => row[to])) - 1);
  return row;
}

/// Adds a way point to each row that an edge crosses; edges from one node share theirs.
function routeEdges(items, edges) {
  const chains = new Map();
  const link = (a, b) => {
    items[a].down.push(b);
    items[b].up.push(a);
  };
  return edges.map(([from, to]) => {
    let chain = chains.get(from);
    if (!chain) chains.set(from, (chain = [from]));
    const rows = items[to].row - items[from].row;
    while (chain.length < rows) {
      items.push({ width: 6, row: items[from].row + chain.length, up: [], down: [], bend: true });
      link(chain[chain.length - 1], items.length - 1);
      chain.push(items.length - 1);
    }
    const before = chain[Math.max(rows - 1, 0)];
    link(before, to);
    return [...chain.slice(0, Math.max(rows, 1)), to];
  });
}

function orderRows(items, rows) {
  const settle = () => rows.forEach((row) => row.forEach((k, place) => (items[k].place = place)));
  settle();
  const rounds = items.length > 8000 ? 2 : 12;
  for (let round = 0; round < rounds; ++round) {
    const side = round % 2 === 0 ? "up" : "down";
    const order = round % 2 === 0 ? rows : [...rows].reverse();
    for (const row of order) {
      for (const k of row) {
        const near = items[k][side];
        items[k].wish = near.length === 0
          ? items[k].place : near.reduce((sum, n) => sum + items[n].place, 0) / near.length;
      }
      row.sort((a, b) => items[a].wish - items[b].wish || items[a].place - items[b].place);
      row.forEach((k, place) => (items[k].place = place));
    }
  }
}

function placeRows(items, rows, gap) {
  for (const row of rows) {
    let x = 0;
    for (const k of row) {
      items[k].x = x + items[k].width / 2;
      x += items[k].width + gap;
    }
    for (const k of row) items[k].x -= x / 2;
  }
  const rounds = items.length > 8000 ? 4 : 24;
  for (let round = 0; round < rounds; ++round) {
    const sides = round >= rounds - 4 ? ["up", "down"] : [round % 2 === 0 ? "up" : "down"];
    for (const row of round % 2 === 0 ? rows : [...rows].reverse()) spread(items, row, sides, gap);
  }
}

/// Neighbours that decide where a node goes. Ends of the graph, such as inputs beside a long chain, and edges
/// that pass by follow and do not pull, or the chain would drift to their side.
function anchors(items, near) {
  const inner = near.filter((n) => items[n].up.length > 0 && items[n].down.length > 0);
  const real = inner.filter((n) => !items[n].bend);
  return real.length > 0 ? real : inner.length > 0 ? inner : near;
}

/// Moves a row to where its neighbours are, as near as its order and the gaps allow.
function spread(items, row, sides, gap) {
  const blocks = [];
  let offset = 0;
  row.forEach((k, place) => {
    if (place > 0) offset += (items[row[place - 1]].width + items[k].width) / 2 + gap;
    const near = anchors(items, sides.flatMap((side) => items[k][side]));
    // A little towards the middle, so that what drift remains does not add up over many rows.
    const wish = 0.96 * (near.length === 0
      ? items[k].x : near.reduce((sum, n) => sum + items[n].x, 0) / near.length);
    const weight = items[k].bend ? 1 : 4;
    let block = { sum: (wish - offset) * weight, weight, members: [[k, offset]] };
    while (blocks.length > 0) {
      const last = blocks[blocks.length - 1];
      if (last.sum / last.weight <= block.sum / block.weight) break;
      blocks.pop();
      block = { sum: last.sum + block.sum, weight: last.weight + block.weight,
        members: last.members.concat(block.members) };
    }
    blocks.push(block);
  });
  for (const block of blocks)
    for (const [k, shift] of block.members) items[k].x = block.sum / block.weight + shift;
}
