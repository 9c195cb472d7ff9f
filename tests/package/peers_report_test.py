"""The table and the picture that bench/peers makes of its measurements, from a document made here."""
import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import report  # noqa: E402


def record(median, rounds, agrees=True):
    return {"version": "1.2", "median_us": median, "round_medians_us": rounds,
            "processor_us": 2 * median, "round_processor_us": [2 * time for time in rounds], "p99_us": 2 * median,
            "agrees": agrees, "disagreement": 1e-6, "load_ms": 1.0, "first_call_ms": 2.0,
            "compile_ms": None, "warm_start_ms": 1.5, "peak_bytes": 5e6}


def document(**peers):
    cost = {"flops": 2_000_000, "cheap": 0, "transcendental": 0, "input_bytes": 1 << 10,
            "output_bytes": 1 << 10, "weight_bytes": 0, "tolerance": 1e-4}
    copies = {"4096": 1e9, "262144": 2e9, "4194304": 2e9, "268435456": 1e9}
    return {"date": "2001-02-03", "processor": "P", "processors": 2, "load_at_start": [0.1],
            "load_at_end": [0.2], "rounds": 3, "seconds": 0.1,
            "limits": {"fma_gflops": 100.0, "copy_bytes_per_second": copies},
            "rows": [{"name": "row", "title": "a <row>", "cost": cost, "threads": {"1": peers}}]}


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.document = document(heddle=record(40, [40, 80, 40]),
                                 onnxruntime=record(60, [60, 120, 90]),
                                 openvino=record(50, [50, 100, 50]),
                                 onnxruntime_tuned={"error": "exit 1: no such option"})
        self.row = self.document["rows"][0]

    def test_a_ratio_is_the_median_of_ratios_within_rounds(self):
        self.assertEqual(report.ratio(self.row, "1", "onnxruntime"), 1.5)
        self.assertIsNone(report.ratio(self.row, "1", "onnxruntime_tuned"))

    def test_the_best_peer_is_the_fastest_that_ran(self):
        self.assertEqual(report.best_peer(self.row, "1"), ("openvino", 1.25))
        alone = document(heddle=record(40, [40]))["rows"][0]
        self.assertEqual(report.best_peer(alone, "1"), (None, None))

    def test_the_floor_is_the_longer_of_arithmetic_and_traffic(self):
        limits, cost = self.document["limits"], dict(self.row["cost"])
        self.assertAlmostEqual(report.floor_us(cost, limits, 1), 20.0)
        self.assertAlmostEqual(report.floor_us(cost, limits, 2), 10.0)
        cost["input_bytes"] = 100_000
        self.assertAlmostEqual(report.floor_us(cost, limits, 1), 101_024 / 2e9 * 1e6)
        self.assertIsNone(report.floor_us({"tolerance": 1e-3}, limits, 1))

    def test_the_table_has_each_peer_the_ratio_and_the_share_of_the_floor(self):
        text = report.markdown(self.document)
        self.assertIn("| graph | Heddle | ONNX Runtime | ONNX Runtime, tuned | OpenVINO |", text)
        self.assertIn("| a <row> | 40 | 60 | fails | 50 | 80 | 1.25 | 1.25 | 20 | 25 % |", text)
        self.assertIn("- a <row>, ONNX Runtime, tuned, 1 thread(s): exit 1: no such option", text)

    def test_a_wrong_answer_is_marked(self):
        self.row["threads"]["1"]["openvino"]["agrees"] = False
        self.assertIn("50 (wrong)", report.markdown(self.document))

    def test_a_peer_that_is_wrong_is_not_the_best(self):
        self.row["threads"]["1"]["openvino"]["agrees"] = False
        self.assertEqual(report.best_peer(self.row, "1"), ("onnxruntime", 1.5))

    def test_columns_are_the_peers_that_took_part_in_one_order(self):
        peers = {name: record(60, [60, 60, 60]) for name in ("torch", "iree", "jax", "onnxruntime")}
        text = report.markdown(document(heddle=record(40, [40, 40, 40]), **peers))
        self.assertIn("| graph | Heddle | ONNX Runtime | JAX | IREE | torch.compile | p99 of Heddle |", text)
        self.assertEqual(set(report.NAMES) - {"heddle"}, set(report.MARKS))

    def test_the_picture_is_xml_with_a_bar_a_row_and_a_mark_a_peer(self):
        self.row["threads"]["1"]["jax"] = record(400, [4000, 4000, 4000])
        self.row["threads"]["1"]["iree"] = record(4, [4, 4, 4], agrees=False)
        root = xml.etree.ElementTree.fromstring(report.svg(self.document))
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("a <row>", texts)
        self.assertIn("1.25 OpenVINO", texts)
        self.assertNotIn("IREE", texts)
        bars = [element for element in root.iter("{http://www.w3.org/2000/svg}rect")
                if element.get("height") == str(report.BAR_HEIGHT)]
        self.assertEqual([float(bar.get("x")) for bar in bars], [round(report.position(1), 1)])
        places = {}
        for path in root.iter("{http://www.w3.org/2000/svg}path"):
            x, y = path.get("transform")[len("translate("):-1].split()
            places.setdefault(path[0].text, []).append((float(x), float(y)))
        row_height = report.TOP + report.BAR_HEIGHT / 2
        marks = {name: [x for x, y in points if y == row_height] for name, points in places.items()}
        self.assertEqual(marks, {"ONNX Runtime": [round(report.position(1.5), 1)],
                                 "OpenVINO": [round(report.position(1.25), 1)],
                                 "JAX": [report.WIDTH - report.RIGHT]})  # beyond the end of the scale


if __name__ == "__main__":
    unittest.main()
