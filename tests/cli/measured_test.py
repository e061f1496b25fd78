#!/usr/bin/env python3
"""Measured plans through the commands: tune, show --timings, explain, stats, report, doctor. The daemon is real; its workers are
fakes, one of them on a GPU that is none."""
import html.parser
import os
import pathlib
import unittest

from box import EXAMPLES, NO_COMPILER, Box

DEVICE = "NVIDIA H200, driver 580.1"


class WithGpu(unittest.TestCase):
    def setUp(self):
        self.box = Box(QUERN_WORKER=os.environ["FAKE_WORKER"])
        self.fake = self.box.path / "fake"
        self.fake.mkdir()
        self.box.env["QUERN_FAKE_DIR"] = str(self.fake)
        self.tell(search_finds="1", search_lists="1", gpu=DEVICE)
        self.graph = EXAMPLES / "ntrans_b1.qg"

    def tearDown(self):
        self.box.close()

    def tell(self, **files):
        for name, text in files.items():
            (self.fake / name).write_text(text)

    def restart(self):
        self.box.run("stop")

    def ready(self):
        """Waits until the daemon has looked for GPUs."""
        for _ in range(200):
            facts = self.box.json("stats")["facts"]
            if facts.get("gpu 0", "starting") != "starting":
                return facts
        self.fail("no GPU is found")

    def tune(self, *words):
        return self.box.json("tune", self.graph, "-t", "sm_90a", *words)["plans"][0]

    def test_tune_measures_and_says_what_it_found(self):
        self.ready()
        plan = self.tune("--budget", "10m")
        self.assertEqual((plan["tier"], plan["device"]), ("measured", DEVICE))
        self.assertEqual((plan["baseline_us"], plan["best_us"], plan["timed"], plan["refused"]), (9, 7, 3, 0))
        text = self.box.run("tune", plan["key"][:8]).stdout
        self.assertRegex(text, r"(?m)^\w{8} +9\.00 +7\.00 +1\.29 +3 +0  the last is the fastest$")
        everything = self.box.json("tune", "--all")["plans"]
        self.assertEqual([each["key"] for each in everything], [plan["key"]])

    def test_timings_are_shown(self):
        self.ready()
        key = self.tune()["key"]
        text = self.box.run("show", key, "--timings").stdout
        self.assertTrue(text.startswith(DEVICE + "\n"), text)
        self.assertRegex(text, r"(?m)^  baseline +9\.00 +9\.00 ")
        self.assertRegex(text, r"(?m)^  \w{8} +2\.00 +7\.00 .* stands$")
        timings, = self.box.json("show", key, "--timings")["timings"]
        self.assertEqual([program["cold_us"] for program in timings["programs"]], [7, 8, 9])
        explained = self.box.run("explain", self.graph, "-t", "sm_90a").stdout
        for line in (f"measuring  done on {DEVICE}: 3 programs timed, 0 refused", "baseline: 9.00 us by the model",
                     f"baseline: 9.00 us cold, unknown hot on {DEVICE}", f"measured on {DEVICE}: the last is the fastest; the baseline takes 9.00 us\n"):
            self.assertIn(line, explained)
        self.assertNotIn("candidate 0", explained)  # what became of them is in the table

    def test_stats_judge_the_model(self):
        self.ready()
        self.tune()
        model, = self.box.json("stats")["model"]
        self.assertEqual((model["device"], model["graphs"], model["programs"]), (DEVICE, 1, 3))
        # The model's order is 1, 2, baseline; the measured one 2, 1, baseline.
        self.assertAlmostEqual(model["rank_correlation"], 0.5)
        self.assertAlmostEqual(model["regret"], 8 / 7)
        self.assertIn(f"model on {DEVICE}  rank correlation 0.50 (mean), regret 1.14", self.box.run("stats").stdout)
        self.assertEqual(self.box.json("stats", "--model", "1")["model"], [model])
        self.assertEqual(self.box.json("stats", "--model", "0")["model"], [])

    def test_the_report_is_one_page(self):
        self.assertIn("no plan was measured yet", self.box.run("report", code=1).stderr)
        self.ready()
        key = self.tune()["key"]
        path = self.box.path / "report.html"
        self.box.run("report", path)
        page = path.read_text()
        self.assertEqual(page, self.box.run("report").stdout)
        tags = []

        class Tags(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                tags.append(tag)
                assert not {"src", "href"} & {name for name, _ in attributes}, "it needs another file"

        Tags().feed(page)
        self.assertEqual(tags.count("svg"), 2)
        self.assertEqual(tags.count("circle"), 3 + 2)
        self.assertIn(f"<code>{key[:8]}</code>", page)
        self.box.run("report", "/nonexistent/report.html", code=5)

    def test_bad_input_is_named(self):
        self.ready()
        self.assertIn("name graph files or keys, or --all", self.box.run("tune", code=2).stderr)
        for budget in ("soon", "0s", "-3m", "10x", "9999h", "1.5m"):
            self.assertIn("takes a time such as 90s", self.box.run("tune", self.graph, f"--budget={budget}", code=2).stderr)
        self.assertIn("--device takes a number", self.box.run("tune", self.graph, "--device", "first", code=2).stderr)
        self.assertIn("no plan with a key that begins with 01234567", self.box.run("tune", "01234567", code=1).stderr)
        self.assertIn("No such file", self.box.run("tune", "nowhere.qg", code=1).stderr)
        self.assertIn("no plan in the cache", self.box.run("tune", "--all").stderr)
        done = self.box.run("tune", self.graph, "-t", "sm_90a", "--device", "5", code=5)
        self.assertIn("there is no GPU 5", done.stderr)
        done = self.box.run("tune", self.graph, "-t", "sm_80", code=5)
        self.assertIn(f"nothing can be measured for sm_80: GPU 0: {DEVICE} is of target sm_90a", done.stderr)
        self.restart()
        self.assertIn("no daemon", self.box.run("tune", "--all", "--no-start", code=3).stderr.lower())
        self.box.env["QUERN_MEASURE"] = "never"
        done = self.box.run("tune", self.graph, "-t", "sm_90a", code=5)
        self.assertIn("measure = never", done.stderr)

    def test_without_a_driver_it_says_so_and_measures_later(self):
        (self.fake / "gpu").unlink()
        self.assertEqual(self.ready()["gpu 0"], "none: no driver")
        self.assertIn("GPU 0: no driver", self.box.run("tune", self.graph, "-t", "sm_90a", code=5).stderr)
        self.assertIn("GPU 0: no driver", self.box.run("explain", self.graph, "-t", "sm_90a").stdout)
        finding, = [each for each in self.box.json("doctor", code=1 if NO_COMPILER else 0)["findings"] if each["name"] == "measuring on gpu 0"]
        self.assertEqual((finding["verdict"], finding["what"]), ("warn", "none: no driver"))
        key = self.box.json("ls")["plans"][0]["key"]
        self.assertIn("no program of this plan was measured yet", self.box.run("show", key, "--timings", code=1).stderr)
        self.restart()
        self.tell(gpu=DEVICE)
        self.ready()
        plan, = self.box.json("tune", "--all")["plans"]
        self.assertEqual((plan["key"], plan["tier"]), (key, "measured"))
        self.assertEqual(pathlib.Path(self.fake / "compiles").read_text(), "x")  # nothing was compiled again


if __name__ == "__main__":
    unittest.main(verbosity=2)
