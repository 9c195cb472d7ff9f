#!/usr/bin/env python3
"""Opens pages of `heddle plan --html` in headless Chromium and uses them by mouse and by keyboard.

usage: plan_page_test.py HEDDLE [--screenshots DIR]
Exits with 77, a skip, where there is no Chromium (Debian: chromium).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from chromium import Page, find_chromium

SMALL = """graph @main(%x: f32[s0, 64] "x", %y: f32[s0, 64] "y", %w: f32[64, 64] "w", %p: bool[] "p") {
  %a = mul(%x, %y) @{compile = "mlp"}
  %b = add(%a, 1.0: f32) @{compile = "mlp"}
  %m = matmul(%b, %w) @{compile = "tail"}
  %t = relu(%m) @{compile = "tail"}
  %s = sin(%a) after(%b)
  %c = exp(%x) after(%s)
  %r = add(%t, %s)
  %q = add(%r, %c) after(%t)
  %k = cond(%p, %q) {then = @then_0, else = @else_0}
  return %k "result </script><b>", %r "r"
}
graph @then_0(%x: f32[s0, 64]) {
  %e = exp(%x)
  %f = softmax(%e)
  return %f
}
graph @else_0(%x: f32[s0, 64]) {
  %e = neg(%x)
  return %e
}
"""


def large(blocks):
    """Blocks of a branch, a long edge and a join: more than 5 nodes each."""
    lines = ['graph @main(%x: f32[s0, 32] "x", %w: f32[32, 32] "w") {', "  %h0 = relu(%x)"]
    for k in range(blocks):
        lines += [f"  %a{k} = matmul(%h{k}, %w)", f"  %b{k} = tanh(%a{k})",
                  f"  %c{k} = exp(%h{k})", f"  %d{k} = mul(%b{k}, %c{k})",
                  f"  %h{k + 1} = add(%d{k}, %h{k // 2})"]
    return "\n".join(lines + [f"  return %h{blocks}", "}", ""])


STREAMS = """graph @main(%x: f32[s0, 64], %y: f32[s0, 64]) {
  %a = exp(%x) @{stream = 0}
  %s = cumsum(%a) {axis = 1} @{stream = 0}
  %b = sin(%y) @{stream = 1}
  %t = cumsum(%b) {axis = 1} @{stream = 1}
  %r = add(%s, %t)
  return %r
}
"""

# Two steps and a body that run one body, and a call with options of its own for which it is compiled apart.
SHARED = """graph @main(%x: f32[4], %y: f32[8]) {
  %a = invoke(%x) {body = @twice}
  %b = invoke(%a) {body = @once}
  %c = invoke(%b) {body = @twice}
  %d = invoke(%y) {body = @once} @{compile = "apart"}
  return %c, %d
}
graph @twice(%x: f32[4]) {
  %a = invoke(%x) {body = @once}
  %b = invoke(%a) {body = @once}
  return %b
}
graph @once(%x: f32[s0]) {
  %a = cumsum(%x) {axis = 0}
  %b = exp(%a)
  return %b
}
"""


CONTROLS = 'a[href], button, input, select, summary, [tabindex="0"]'
# Numbers the controls that can be seen, in a property that survives no change of the page's state.
NUMBER_CONTROLS = """(() => { let n = 0;
  for (const e of document.querySelectorAll('%s'))
    if (e.checkVisibility() && !(e.getAttribute('tabindex') === '-1')) e.testNumber = n++;
  return n; })()""" % CONTROLS
FOCUSED = """(() => { const e = document.activeElement;
  const box = e.querySelector?.(':scope > .box');
  const style = getComputedStyle(e);
  return { number: e.testNumber ?? -1, tag: e.tagName, id: e.id, label: e.getAttribute('aria-label') ?? '',
    visible: box ? parseFloat(getComputedStyle(box).strokeWidth) >= 4
                 : style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 }; })()"""
# Pairs of node boxes that overlap, and labels wider than their boxes.
CLASHES = """(() => { const boxes = [...document.querySelectorAll('#graph .thing')].map((g) => {
    const r = g.querySelector('.box').getBBox();
    const wide = [...g.querySelectorAll('text')].some((t) => t.getComputedTextLength() > r.width);
    return { x: r.x, y: r.y, w: r.width, h: r.height, wide, label: g.getAttribute('aria-label') }; });
  const found = boxes.filter((b) => b.wide).map((b) => b.label + ' is too wide');
  boxes.forEach((a, i) => boxes.slice(0, i).forEach((b) => {
    if (a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h)
      found.push(a.label + ' over ' + b.label); }));
  return { count: boxes.length, found }; })()"""
CONTRAST = """(() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const worst = { value: 99, label: '' };
  for (const g of document.querySelectorAll('svg .thing'))
    for (const t of g.querySelectorAll('text')) {
      const value = ratio(light(getComputedStyle(t).fill), light(getComputedStyle(g.querySelector('.box')).fill));
      if (value < worst.value) Object.assign(worst, { value, label: g.getAttribute('aria-label') });
    }
  const body = getComputedStyle(document.body);
  return { worst, page: ratio(light(body.color), light(body.backgroundColor)), ground: body.backgroundColor };
})()"""


class PlanPage(unittest.TestCase):
    command = None
    browser = None
    screenshots = None

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="heddle_plan_page_")
        cls.plans = {}
        for name, text, shape in (("small", SMALL, "x=8x64"), ("large", large(60), "x=4x32")):
            model = os.path.join(cls.scratch.name, name + ".hir")
            with open(model, "w") as file:
                file.write(text)
            ran = subprocess.run(
                [cls.command, "plan", model, "--shape", shape, "--threads", "2", "--json", "--html",
                 cls.path(name)], stdout=subprocess.PIPE, text=True, check=True)
            cls.plans[name] = json.loads(ran.stdout)
        cls.page = Page(cls.browser)

    @classmethod
    def tearDownClass(cls):
        cls.page.__exit__()
        cls.scratch.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.scratch.name, name + ".html")

    def setUp(self):
        self.page.emulate("light")
        self.page.open(self.path("small"))
        self.plan = self.plans["small"]

    def tearDown(self):
        self.assertEqual(self.page.errors, [])

    def shot(self, name):
        if self.screenshots:
            self.page.screenshot(os.path.join(self.screenshots, name + ".png"))

    def details(self):
        return self.page.evaluate("document.getElementById('details').innerText")

    def source(self):
        return self.page.evaluate("document.querySelector('#details .source')?.textContent ?? null")

    def marked(self, where):
        """Labels of what is marked as belonging to the selection."""
        return self.page.evaluate(
            "[...document.querySelectorAll('%s .thing.related')].map((e) => e.getAttribute('aria-label'))"
            % where)

    def focused(self):
        return self.page.evaluate(FOCUSED)

    def focus(self, selector):
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")

    def test_needs_nothing_else(self):
        with open(self.path("small")) as file:
            text = file.read()
        self.assertIsNone(re.search(r'(src|href)\s*=\s*"(?!#)', text))
        self.assertEqual(self.page.evaluate("performance.getEntriesByType('resource').length"), 0)
        # A label that would end the script element is text.
        self.assertEqual(self.page.evaluate("document.querySelectorAll('b').length"), 0)
        self.assertIn("result </script><b>", self.page.evaluate(
            "[...document.querySelectorAll('#graph title')].map((t) => t.textContent).join('|')"))

    def test_click_on_each_kernel_shows_its_source(self):
        kernels = self.plan["kernels"]
        self.assertGreater(len(kernels), 3)
        for k, kernel in enumerate(kernels):
            self.page.click(f"#kernels li:nth-child({k + 1}) button")
            if kernel["source"]:
                self.assertEqual(self.source(), kernel["source"])
            else:
                self.assertEqual(kernel["kind"], "nested")
                self.assertIn("Runs nested plans", self.source())
            self.assertTrue(self.details().startswith(kernel["name"]))
            self.assertEqual(self.page.evaluate(
                "[...document.querySelectorAll('#kernels button[aria-pressed=true]')].map((b) => b.textContent)"),
                [kernel["name"]])
            nodes = {label.split(",")[0].split()[-1] for label in self.marked("#graph")
                     if not label.startswith("output")}
            self.assertLessEqual(set(kernel["nodes"]) - {"f"}, nodes)
            steps = [step["index"] for step in self.plan["steps"] if step["kernel"] == kernel["name"]]
            self.assertEqual([int(re.match(r"Step (\d+)", label)[1]) for label in self.marked("#time")
                              if label.startswith("Step")], steps)
        self.shot("small_kernel")

    def test_click_on_a_node_step_and_buffer_shows_it(self):
        self.page.click("#graph [aria-label^='matmul m']")
        self.assertIn("%m = matmul(%b", self.details())
        self.assertIn("f32[s0, 64]", self.page.evaluate(
            "[...document.querySelectorAll('#graph [aria-label^=\"matmul m\"] text')].map((t) => t.textContent)"))
        self.page.click("#time [aria-label^='Step 1,']")
        self.assertTrue(self.details().startswith("Step 1\n"))
        used = {(b["offset"], b["bytes"]) for b in self.plan["buffers"]
                if b["offset"] is not None and b["first_step"] is not None
                and b["first_step"] <= 1 <= b["last_step"]}
        self.assertIn(f"arena in use\n{sum(size for _, size in used) / 1024:.1f} KiB", self.details())
        buffer = next(b for b in self.plan["buffers"] if b["offset"] is not None)
        self.page.click(f"#time [aria-label^='Buffer {buffer['value']}:']")
        self.assertIn(f"{buffer['bytes']} (", self.details())
        self.page.click("#graph-legend button")
        self.assertTrue(self.details().startswith("Region mlp"))
        self.assertEqual(sorted(label.split()[1].strip(",") for label in self.marked("#graph")
                                if not label.startswith("const")), ["a", "b"])

    def test_draws_every_edge_and_dashes_the_weak_ones(self):
        self.page.evaluate("document.getElementById('graph-fixed').checked || "
                           "document.getElementById('graph-fixed').click()")
        graph = self.plan["graphs"][0]
        strong = sum(len(set(node["inputs"])) for node in graph["nodes"]) + len(graph["outputs"])
        weak = sum(len(set(node["after"])) for node in graph["nodes"])
        self.assertEqual(weak, 3)
        drawn = self.page.evaluate(
            "[...document.querySelectorAll('#graph path.edge')].map((p) => getComputedStyle(p).strokeDasharray)")
        self.assertEqual(len(drawn), strong + weak)
        self.assertEqual(sum(dash != "none" for dash in drawn), weak)
        edges = [edge["kind"] for step in self.plan["steps"] for edge in step["edges"]]
        self.assertEqual(self.page.evaluate("document.querySelectorAll('#time path.edge').length"),
                         len(edges))
        self.assertEqual(self.page.evaluate("document.querySelectorAll('#time path.weak').length"),
                         edges.count("weak"))

    def test_memory_map_shows_each_buffer_of_the_arena_at_its_place(self):
        shown = [b for b in self.plan["buffers"]
                 if b["offset"] is not None and b["first_step"] is not None and (b["alias_of"] is None or b.get("in_place"))]
        self.assertGreater(len(shown), 3)
        boxes = self.page.evaluate(
            "[...document.querySelectorAll('#time [aria-label^=Buffer] .box')].map((e) => "
            "({x: +e.getAttribute('x'), y: +e.getAttribute('y'), w: +e.getAttribute('width'), "
            "h: +e.getAttribute('height'), label: e.parentNode.getAttribute('aria-label')}))")
        self.assertEqual(len(boxes), len(shown))
        by_name = {box["label"].split()[1].rstrip(":"): box for box in boxes}
        steps = len(self.plan["steps"])
        column = self.page.evaluate("document.querySelector('#time [aria-label^=Step] .box').getBBox().width") + 2
        for buffer in shown:
            box = by_name[buffer["value"]]
            self.assertAlmostEqual(box["x"], buffer["first_step"] * column + 0.5, places=3)
            self.assertAlmostEqual(box["w"], (buffer["last_step"] - buffer["first_step"] + 1) * column - 1,
                                   places=3)
            self.assertLessEqual(box["x"] + box["w"], steps * column)

    def tab_round(self):
        """Presses Tab until the focus comes back; what was focused by number, and whether it was visible."""
        count = self.page.evaluate(NUMBER_CONTROLS)
        seen = {}
        for _ in range(2 * count + 20):
            self.page.press("Tab")
            focused = self.focused()
            if focused["number"] >= 0:
                seen[focused["number"]] = focused
        return count, seen

    def missed(self, count, seen):
        return self.page.evaluate(
            "[...document.querySelectorAll('%s')].filter((e) => %s.includes(e.testNumber)).map((e) => e.outerHTML)"
            % (CONTROLS, json.dumps(sorted(set(range(count)) - set(seen)))))

    def test_tab_reaches_every_control_and_shows_where_it_is(self):
        self.page.click("#kernels button")  # the details have controls too
        self.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        count, seen = self.tab_round()
        self.assertGreater(count, 30)
        self.assertEqual(self.missed(count, seen), [])
        self.assertEqual([f"{f['tag']} {f['id']} {f['label']}" for f in seen.values() if not f["visible"]], [])

    def test_keyboard_opens_a_kernel(self):
        kernels = self.plan["kernels"]
        self.focus("#kernels button")
        for key, kernel in (("Enter", kernels[0]), (" ", kernels[1]), ("Enter", kernels[2])):
            self.page.press(key)
            self.assertEqual(self.source(), kernel["source"])
            self.page.press("ArrowDown")
        self.page.press("End")
        self.page.press("Enter")
        self.assertTrue(self.details().startswith(kernels[-1]["name"]))

    def test_arrow_keys_walk_the_graph(self):
        self.focus("#graph [tabindex='0']")
        self.page.press("Home")
        labels = [self.focused()["label"]]
        total = self.page.evaluate("document.querySelectorAll('#graph .thing').length")
        for _ in range(total - 1):
            self.page.press("ArrowRight")
            labels.append(self.focused()["label"])
        self.assertEqual(len(set(labels)), total)
        self.assertEqual(self.page.evaluate("document.querySelectorAll('#graph [tabindex=\"0\"]').length"), 1)
        self.page.press("Home")
        self.page.press("ArrowDown")
        self.page.press("Enter")
        self.assertIn("mul(", self.details())
        self.page.press("ArrowUp")
        self.page.press(" ")
        self.assertIn("input", self.details())

    def test_arrow_keys_walk_steps_and_buffers(self):
        for kind, count in (('"Step "', len(self.plan["steps"])), ('"Buffer "', None)):
            everything = self.page.evaluate(
                f"[...document.querySelectorAll('#time [aria-label^={kind}]')].map((e) => e.getAttribute('aria-label'))")
            self.assertEqual(len(everything), count or len(everything))
            self.focus(f"#time [aria-label^={kind}][tabindex='0']")
            walked = [self.focused()["label"]]
            for _ in everything[1:]:
                self.page.press("ArrowRight")
                walked.append(self.focused()["label"])
            self.assertEqual(walked, everything)
            self.page.press("Home")
            self.page.press("Enter")
            self.assertEqual(self.focused()["label"], everything[0])
            self.assertNotIn("Choose a node", self.details())

    def test_streams_have_lanes_and_kernels_their_cuda_text(self):
        model = os.path.join(self.scratch.name, "streams.hir")
        with open(model, "w") as file:
            file.write(STREAMS)
        ran = subprocess.run(
            [self.command, "plan", model, "--shape", "x=8x64", "--device", "cuda-sim", "--json",
             "--html", self.path("streams")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if "the simulated driver was not found" in ran.stderr:
            self.skipTest("the simulated driver is not built")
        plan = json.loads(ran.stdout)
        self.assertEqual({step["stream"] for step in plan["steps"]}, {0, 1})
        self.page.open(self.path("streams"))
        self.assertIn("2 streams", self.page.evaluate("document.getElementById('summary').textContent"))
        lanes = self.page.evaluate(
            "[...document.querySelectorAll('#time .thing[aria-label^=Step] .box')].map((e) => +e.getAttribute('y'))")
        self.assertEqual([lane == min(lanes) for lane in lanes],
                         [step["stream"] == 0 for step in plan["steps"]])
        self.assertEqual(self.page.evaluate("document.querySelectorAll('#time .band').length"), 0)
        for k, kernel in enumerate(plan["kernels"]):
            self.page.click(f"#kernels li:nth-child({k + 1}) button")
            text = self.page.evaluate(
                "document.querySelector('#details pre[aria-label^=CUDA]')?.textContent ?? ''")
            self.assertEqual(text, kernel.get("cuda", ""))
            self.assertEqual("__global__" in text, kernel["kind"] == "jit")

    def test_nested_plans_are_chosen_by_keyboard(self):
        nested = [inner for step in self.plan["steps"] for inner in step.get("nested", [])]
        self.assertEqual([inner["graph"].strip("@") for inner in nested], ["then_0", "else_0"])
        for inner in nested:
            self.focus("#plan-select")
            self.page.press("ArrowDown")
            names = self.page.evaluate("[...document.querySelectorAll('#kernels button')].map((b) => b.textContent)")
            self.assertEqual(names, [kernel["name"] for kernel in inner["kernels"]])
            self.page.click("#kernels button")
            self.assertEqual(self.source(), inner["kernels"][0]["source"])
            self.assertGreater(self.page.evaluate("document.querySelectorAll('#graph .thing').length"), 2)

    def open_shared(self):
        model = os.path.join(self.scratch.name, "shared.hir")
        with open(model, "w") as file:
            file.write(SHARED)
        ran = subprocess.run([self.command, "plan", model, "--json", "--html", self.path("shared")],
                             stdout=subprocess.PIPE, text=True, check=True)
        self.page.open(self.path("shared"))
        return json.loads(ran.stdout)

    def shown_plan(self):
        """The label of the chosen plan, where the focus is, and the names of the graph's nodes."""
        return self.page.evaluate("""(() => { const choice = document.getElementById('plan-select');
          return [choice.selectedOptions[0].textContent, document.activeElement === choice,
            [...document.querySelectorAll('#graph .thing')].map((e) => e.getAttribute('aria-label'))]; })()""")

    def test_bodies_that_several_steps_run_are_opened_from_each(self):
        plan = self.open_shared()
        nested = [step["nested"][0] for step in plan["steps"]]
        self.assertEqual([inner["graph"] for inner in nested], ["twice", "once", "twice", "once_1"])
        self.assertEqual(nested[2]["same_as"], nested[0]["id"])
        self.assertEqual(nested[1]["same_as"], nested[0]["steps"][0]["nested"][0]["id"])
        self.assertEqual([graph["name"] for graph in plan["graphs"]], ["main", "twice", "once", "once_1"])
        choices = self.page.evaluate(
            "[...document.getElementById('plan-select').options].map((option) => option.textContent)")
        self.assertEqual(choices, ["main", "main › step 0 › twice", "main › step 0 › twice › step 0 › once",
                                   "main › step 3 › once_1"])
        opened = {0: choices[1], 1: choices[2], 2: choices[1], 3: choices[3]}
        for step, label in opened.items():
            for keyboard in (False, True):
                self.page.evaluate("choosePlan(0)")
                self.page.click(f"#time [aria-label^='Step {step},']")
                self.assertEqual(self.page.evaluate(
                    "[...document.querySelectorAll('#details dt')].filter((e) => e.textContent === 'runs').length"), 1)
                name = nested[step]["graph"]
                number = self.page.evaluate(
                    "[...document.querySelectorAll('#details button')].findIndex((e) => e.textContent === '%s')" % name)
                self.page.evaluate(
                    "document.querySelectorAll('#details button')[%d].id = 'opens'" % number)
                if keyboard:
                    self.focus("#opens")
                    self.page.press("Enter")
                else:
                    self.page.click("#opens")
                chosen, focused, nodes = self.shown_plan()
                self.assertEqual((chosen, focused), (label, True))
                called = "invoke" if name == "twice" else "cumsum"
                self.assertTrue(any(node.startswith(called) for node in nodes), nodes)
        # From the kernel's details too, and in a body.
        self.page.evaluate("choosePlan(1)")
        self.page.click("#kernels button")
        self.page.evaluate("[...document.querySelectorAll('#details button')]"
                           ".find((e) => e.textContent === 'once').id = 'opens'")
        self.page.click("#opens")
        self.assertEqual(self.shown_plan()[0], choices[2])

    def test_find_marks_and_selects(self):
        self.focus("#find")
        self.page.call("Input.insertText", text="relu")
        marked = self.page.evaluate(
            "[...document.querySelectorAll('.match')].map((e) => e.dataset.find ?? e.textContent)")
        self.assertTrue(marked and all("relu" in label for label in marked), marked)
        self.page.press("Enter")
        self.assertIn("relu(%m)", self.details())

    def test_boxes_do_not_overlap_in_a_graph_of_300_nodes(self):
        self.page.open(self.path("large"))
        clashes = self.page.evaluate(CLASHES)
        self.assertGreater(clashes["count"], 300)
        self.assertEqual(clashes["found"], [])
        self.shot("large")
        self.assertEqual(self.missed(*self.tab_round()), [])

    def test_light_and_dark_can_be_read(self):
        grounds = set()
        for scheme in ("light", "dark"):
            self.page.emulate(scheme)
            found = self.page.evaluate(CONTRAST)
            self.assertGreaterEqual(found["page"], 7)
            self.assertGreaterEqual(found["worst"]["value"], 4.5, found["worst"]["label"])
            grounds.add(found["ground"])
            self.shot("small_" + scheme)
        self.assertEqual(len(grounds), 2)
        dark = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        for expected in ("light", "dark", "system"):
            self.page.click("#theme")
            self.assertIn(expected, self.page.evaluate("document.getElementById('theme').textContent"))
            ground = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
            self.assertEqual(ground == dark, expected != "light")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heddle")
    parser.add_argument("--screenshots")
    arguments, rest = parser.parse_known_args()
    PlanPage.command = arguments.heddle
    PlanPage.screenshots = arguments.screenshots
    PlanPage.browser = find_chromium()
    if PlanPage.browser is None:
        print("no Chromium here: scripts/install_deps nightly installs Debian's")
        return 77
    return 0 if unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
