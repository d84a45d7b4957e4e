// tree.js - the calls as trees: from main down as the data has them, and from the allocation up, made when first asked for.
// A tree is { parents, calls, leaves, children, first }: node 0 is the whole; parents come before their children.
function treeOf(parents, calls, leaves) {
  // The children of a node, one after another: counted, then placed.
  const first = new Int32Array(parents.length + 1);
  for (let node = 1; node < parents.length; node++) first[parents[node] + 1]++;
  for (let node = 0; node < parents.length; node++) first[node + 1] += first[node];
  const next = first.slice();
  const children = new Int32Array(Math.max(parents.length - 1, 0));
  for (let node = 1; node < parents.length; node++) children[next[parents[node]]++] = node;
  return { parents, calls, leaves, children, first, sums: {} };
}

function treeDown() {
  return treeOf(Int32Array.from([0, ...graph.parents]), Int32Array.from([-1, ...graph.calls]), graph.leaves.map((leaf) => leaf + 1));
}

function treeUp(down) {
  const parents = [0];
  const calls = [-1];
  const known = new Map();
  const width = graph.functions.length;
  const leaves = down.leaves.map((leaf) => {
    let at = 0;
    for (let node = leaf; node; node = down.parents[node]) {
      const key = at * width + down.calls[node];
      let found = known.get(key);
      if (found === undefined) {
        found = parents.length;
        known.set(key, found);
        parents.push(at);
        calls.push(down.calls[node]);
      }
      at = found;
    }
    return at;
  });
  return treeOf(Int32Array.from(parents), Int32Array.from(calls), leaves);
}

const trees = {};
function tree(direction) {
  if (!trees.down) trees.down = treeDown();
  if (!trees[direction]) trees[direction] = treeUp(trees.down);
  return trees[direction];
}

// What a measure is at each node with all below it, and what ends there.
function sums(tree, key) {
  if (tree.sums[key]) return tree.sums[key];
  const own = new Float64Array(tree.parents.length);
  tree.leaves.forEach((leaf, stack) => (own[leaf] += graph[key][stack]));
  const total = own.slice();
  for (let node = total.length - 1; node > 0; node--) total[tree.parents[node]] += total[node];
  return (tree.sums[key] = { own, total });
}

// Nodes from the outermost to this one, without the whole.
function pathTo(tree, node) {
  const path = [];
  for (; node; node = tree.parents[node]) path.unshift(node);
  return path;
}
