#!/usr/bin/python3
"""The `atoll` command in scripts: envelopes and exit codes."""

import csv
import json
import os
import pty
import shutil
import signal
import stat
import subprocess

from harness import cases
from harness import cluster as cluster_module
from harness import faults
from harness import processes
from harness import wait

OK, FAILED, USAGE, TIMEOUT, INVALID_CONFIG, UNHEALTHY, CONNECTION = range(7)
NOT_FOUND, CONFLICT = 8, 9


class CliTest(cluster_module.IntegrationTest):

    def atoll(self, *arguments, check=OK):
        return processes.run_cli(*arguments, "--coordinator",
                                 self.cluster.coordinator_address, check=check)

    def data(self, *arguments):
        envelope = json.loads(self.atoll(*arguments, "-o", "json").stdout)
        self.assertEqual(envelope["schema_version"], 1)
        self.assertEqual(envelope["status"], "ok")
        self.assertEqual(envelope["exit_code"], 0)
        return envelope["data"]

    def error(self, code, *arguments):
        done = self.atoll(*arguments, "-o", "json", check=code)
        envelope = json.loads(done.stdout)
        self.assertEqual(envelope["status"], "error")
        self.assertEqual(envelope["exit_code"], code)
        for key in ("code", "message"):
            self.assertTrue(envelope["error"][key], envelope)
        return envelope["error"]

    def test_an_error_fits_a_terminal(self):
        piped = processes.run_cli("run", "create", "missing.toml",
                                  check=NOT_FOUND).stderr
        self.assertGreater(max(map(len, piped.splitlines())), 80)
        terminal, child = pty.openpty()
        self.addCleanup(os.close, terminal)
        subprocess.run(
            [processes.binary(processes.CLI), "run", "create", "missing.toml"],
            stderr=child, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            timeout=wait.PATIENCE_S, check=False)
        os.close(child)
        shown = os.read(terminal, 1 << 16).decode()
        self.assertLessEqual(max(map(len, shown.splitlines())), 80, shown)
        self.assertEqual(shown.split(), piped.split())

    def test_output_that_cannot_be_written_is_an_error(self):
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.run_values())
        with open("/dev/full", "w", encoding="ascii") as full:
            for arguments in (("run", "show", "run", "-o", "json"),
                              ("run", "list"), ("settings",),
                              ("run", "show", "--help")):
                done = cluster.run_cli(*arguments, check=FAILED, stdout=full)
                self.assertIn("No space left on device", done.stderr)
            for program in (processes.COORDINATOR, processes.SERVER):
                done = subprocess.run(
                    [processes.binary(program), "--help"], stdout=full,
                    stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, FAILED)
                self.assertIn("could not be written", done.stderr)
        # A watch ends with its reader.
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as lost:
            done = cluster.run_cli("run", "watch", "run", check=FAILED,
                                   stdout=lost)
        self.assertIn("Broken pipe", done.stderr)

    def test_a_line_end_after_a_variable_does_not_count(self):
        cluster = self.cluster
        cluster.start_service()
        processes.run_cli("run", "list", check=OK, env={
            "ATOLL_COORDINATOR": cluster.coordinator_address + "\n"})

    def test_every_read_command_prints_an_envelope(self):
        cluster = self.cluster
        sha = self.run_strict(cluster, self.run_values())
        runs = self.data("run", "list")["runs"]
        self.assertEqual([r["run_id"] for r in runs], ["run"])
        shown = json.dumps(self.data("run", "show", "run"))
        self.assertIn("COMPLETED", shown)
        islands = self.data("island", "list", "run")["islands"]
        self.assertEqual(len(islands), 3)
        rounds = self.data("round", "list", "run")["rounds"]
        self.assertEqual([r["commit_seq"] for r in rounds],
                         ["1", "2", "3", "4"])
        self.data("run", "watch", "run")
        lines = self.atoll("run", "watch", "run", "-o", "jsonl").stdout
        for line in lines.splitlines():
            self.assertEqual(json.loads(line)["status"], "ok")
        # stdout has only data, here as a table.
        table = self.atoll("run", "list").stdout
        self.assertIn("run", table)
        self.assertNotIn("\x1b", table)
        self.export_and_eval(sha)

    def test_curves_have_every_round_once_and_the_last_evaluation(self):
        self.run_strict(self.cluster, self.run_values())
        directory = os.path.join(self.cluster.directory, "curves")
        path = os.path.join(self.cluster.directory, "curves.csv")
        watch = ("run", "watch", "run", "--tensorboard", directory, "--csv",
                 path)
        self.data(*watch)
        with open(path, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        rounds = self.data("round", "list", "run")["rounds"]
        self.assertEqual([r["commit_seq"] for r in rows],
                         [r["commit_seq"] for r in rounds])
        # A round without a loss is shorter than its islands' reports.
        for row, shown in zip(rows, rounds):
            loss = shown.get("training_loss")
            if loss is None:
                self.assertEqual(row["training_loss"], "")
            else:
                self.assertAlmostEqual(float(row["training_loss"]), loss,
                                       places=6)
            self.assertAlmostEqual(float(row["gradient_norm"]),
                                   shown["outer_gradient_norm"], places=6)
        last = rounds[-1]["evaluation"]
        self.assertEqual(rows[-1]["validation_commit_seq"], last["commit_seq"])
        (name,) = os.listdir(directory)
        self.assertRegex(name, r"^events\.out\.tfevents\.\d+\.")
        events = os.path.join(directory, name)
        sizes = [os.path.getsize(p) for p in (events, path)]
        self.data(*watch, "--after", "3")
        self.assertEqual([os.path.getsize(p) for p in (events, path)], sizes)
        for place in ("/no/such/place.csv", "/dev/full"):
            with self.subTest(place):
                error = self.error(FAILED, "run", "watch", "run", "--csv",
                                   place)
                self.assertEqual(error["reason"], "CANNOT_WRITE_CURVES")
                self.assertIn(place, error["message"])
        series = {s["name"]: s for s in self.data("metrics", "run")["series"]}
        norms = series["outer/gradient_norm"]["points"]
        self.assertEqual(len(norms), len(rounds))
        one = self.data("metrics", "run", "--name", "outer/gradient_norm")
        self.assertEqual(len(one["series"]), 1)
        self.error(INVALID_CONFIG, "metrics", "run", "--name", "nothing")
        self.atoll("round", "list", "run", "--phases")

    def export_and_eval(self, sha):
        model = os.path.join(self.cluster.directory, "model")
        self.data("run", "export", "run", model)
        with open(os.path.join(model, "manifest.json"),
                  encoding="utf-8") as file:
            self.assertEqual(json.load(file)["parameters_sha256"], sha)
        for name in ("config.json", "generation_config.json"):
            with open(os.path.join(model, name), encoding="utf-8") as file:
                json.load(file)
        text = os.path.join(self.text, "part0.txt")
        done = processes.run_cli("eval", "--model", model, "--data", text,
                                 "-o", "json", check=OK)
        data = json.loads(done.stdout)["data"]
        self.assertGreater(float(data["loss"]), 0.5)
        self.assertLess(float(data["loss"]), 5.6)
        self.assertEqual(int(data["tokens"]) % 32, 0)
        generate = processes.run_cli("generate", "--model", model, "--prompt",
                                     "the ", "--seed", "3", check=OK)
        again = processes.run_cli("generate", "--model", model, "--prompt",
                                  "the ", "--seed", "3", check=OK)
        self.assertEqual(generate.stdout, again.stdout)
        self.corrupt_checkpoint(model, text)

    def corrupt_checkpoint(self, model, text):
        weights = [n for n in os.listdir(model) if n.endswith(".safetensors")]
        path = os.path.join(model, weights[0])
        with open(path, "rb") as file:
            good = file.read()
        for name, bad in (("a flipped bit", _flip(good, len(good) // 2)),
                          ("a short file", good[:-9]),
                          ("a huge header", b"\xff" * 8 + good[8:]),
                          ("an empty file", b"")):
            with self.subTest(name):
                with open(path, "wb") as file:
                    file.write(bad)
                done = processes.run_cli("eval", "--model", model, "--data",
                                         text, "-o", "json")
                self.assertIn(done.returncode, (INVALID_CONFIG, UNHEALTHY),
                              done.stdout + done.stderr)
                error = json.loads(done.stdout)["error"]
                self.assertTrue(error["message"])
        os.unlink(path)
        done = processes.run_cli("eval", "--model", model, "--data", text)
        self.assertIn(done.returncode, (INVALID_CONFIG, UNHEALTHY, NOT_FOUND),
                      done.stderr)

    def test_an_unknown_key_in_a_run_file_is_named_with_its_line(self):
        self.cluster.start_coordinator()
        path = self.cluster.write_run_file(self.run_values())
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        at = lines.index("[outer]") + 1
        lines.insert(at, "learning_rat = 0.7")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        error = self.error(INVALID_CONFIG, "run", "create", path)
        self.assertIn(":%d:" % (at + 1), error["message"])
        self.assertIn("learning_rat", error["message"])
        self.assertEqual(self.data("run", "list")["runs"], [])

    def test_a_run_file_that_makes_no_sense_is_refused(self):
        self.cluster.start_coordinator()
        for change in ({"schedule": {"grace_window": "1s"}},
                       {"schedule": {"inner_step_count": 0}},
                       {"outer": {"optimizer": "adamw"}},
                       {"inner": {"batch_size": "two"}},
                       {"model": {"head_count": 3}},
                       {"data": {"path": "/no/such/place"}}):
            with self.subTest(change=change):
                path = self.cluster.write_run_file(self.run_values(change))
                done = self.atoll("run", "create", path, check=None)
                self.assertIn(done.returncode, (INVALID_CONFIG, NOT_FOUND),
                              done.stderr)

    def test_exit_codes_tell_errors_apart(self):
        self.cluster.start_coordinator()
        self.assertEqual(self.error(NOT_FOUND, "run", "show", "nobody")["code"],
                         "NOT_FOUND")
        self.atoll("run", "show", check=USAGE)
        self.atoll("run", "frobnicate", check=USAGE)
        self.atoll("run", "list", "--no-such-flag", check=USAGE)
        values = self.run_values()
        path = self.cluster.write_run_file(values)
        self.data("run", "create", path, "--run-id", "a")
        # The same file gives the same run; other content is a conflict.
        self.data("run", "create", path, "--run-id", "a")
        other = self.cluster.write_run_file(
            self.run_values({"init": {"seed": 1234}}), "other")
        self.error(CONFLICT, "run", "create", other, "--run-id", "a")
        self.data("run", "pause", "a")
        self.data("run", "resume", "a")
        self.data("run", "cancel", "a")
        self.error(CONFLICT, "run", "resume", "a")
        self.cluster.kill("coordinator")
        self.atoll("run", "list", "--timeout", "2s", check=CONNECTION)

    def serve(self, program, *arguments):
        done = subprocess.run([processes.binary(program)] + list(arguments),
                              stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=wait.PATIENCE_S)
        return done.returncode, done.stdout

    def test_what_keeps_a_service_from_serving_has_a_name_and_an_exit_code(
            self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(1)
        # Its second life: the first life of another process is older.
        cluster.kill("server-0")
        cluster.start_server("server-0")
        taken = cluster.coordinator_address
        of_coordinator = os.path.join(cluster.directory, "coordinator")
        of_server = os.path.join(cluster.directory, "server-0")
        new = os.path.join(cluster.directory, "new")
        processes.init_coordinator(new)
        stranger = os.path.join(cluster.directory, "stranger")
        a_file = os.path.join(cluster.directory, "a_file")
        with open(a_file, "w", encoding="ascii") as file:
            file.write("x")
        server = ("--coordinator=" + taken, "--listen=127.0.0.1:0")
        for program, arguments, code, words in (
                (processes.COORDINATOR, ["--version"], OK, "atoll-coordinator"),
                (processes.SERVER, ["--version"], OK, "atoll-server"),
                (processes.COORDINATOR, [], USAGE, "--data-dir"),
                (processes.SERVER, ["--no-such-flag"], USAGE, "--help"),
                (processes.COORDINATOR,
                 ["--data-dir=" + new, "--listen=" + taken], CONFLICT,
                 "the port is taken"),
                (processes.COORDINATOR,
                 ["--data-dir=" + new, "--listen=0.0.0.0:0"], INVALID_CONFIG,
                 "--insecure"),
                (processes.COORDINATOR,
                 ["--data-dir=" + of_coordinator, "--listen=127.0.0.1:0"],
                 CONFLICT, "another process"),
                (processes.COORDINATOR,
                 ["--data-dir=" + of_server, "--listen=127.0.0.1:0"], CONFLICT,
                 "a parameter server's"),
                (processes.COORDINATOR,
                 ["--data-dir=" + a_file, "--listen=127.0.0.1:0"], CONFLICT,
                 a_file + " is no directory"),
                (processes.SERVER, [*server, "--server-id=server-0",
                                    "--data-dir=" + of_server], CONFLICT,
                 "another process"),
                (processes.SERVER, [*server, "--server-id=server-1",
                                    "--data-dir=" + of_coordinator], CONFLICT,
                 "a coordinator's"),
                (processes.SERVER, [*server, "--server-id=server-0",
                                    "--data-dir=" + stranger], CONFLICT,
                 "another process serves as server-0")):
            with self.subTest(words=words):
                got, said = self.serve(program, *arguments)
                self.assertEqual(got, code, said)
                self.assertIn(words, said)
                self.assertNotIn("type.googleapis.com", said)

    def test_a_port_that_is_no_coordinators_is_named(self):
        self.cluster.start_coordinator()
        self.cluster.start_servers(1)
        address = self.cluster.server_address("server-0")
        done = processes.run_cli("run", "list", "--coordinator", address,
                                 check=FAILED)
        self.assertIn(address, done.stderr)
        self.assertIn("another program", done.stderr)

    def test_a_data_set_that_differs_is_refused_at_join(self):
        self.cluster.start_coordinator()
        self.cluster.start_servers(2)
        self.cluster.create_run(self.run_values())
        other = os.path.join(self.cluster.directory, "other")
        os.makedirs(other, exist_ok=True)
        with open(os.path.join(other, "a.txt"), "w", encoding="ascii") as file:
            file.write("not that text\n" * 4000)
        island = self.cluster.start_island("run", "island-0", data=other)
        self.cluster.may_end("island-0")
        self.assertNotEqual(island.wait(), 0)
        self.assertIn("fingerprint", island.tail())

    def begin(self, name, *arguments):
        process = processes.Process(
            name, [processes.binary(processes.CLI), *arguments,
                   "--coordinator", self.cluster.coordinator_address],
            os.path.join(self.cluster.directory, name + ".log"))
        self.addCleanup(process.stop)
        return process

    def interrupt(self, process, code):
        """Sends Ctrl-C, which must end the command during any wait."""
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(), code, process.tail())
        if code == FAILED:
            self.assertIn("stopped", process.tail())

    def test_an_export_touches_only_its_own_files(self):
        self.run_strict(self.cluster, self.run_values())
        place = os.path.join(self.cluster.directory, "place")
        # A typo brings no other model, and makes no pin.
        for _ in range(2):
            error = self.error(NOT_FOUND, "run", "export", "run", place,
                               "--checkpoint", "finale")
            self.assertEqual(error["reason"], "NO_SUCH_PIN")
            self.assertIn("final", error["message"])
        self.assertFalse(os.path.exists(place))
        published = os.path.join(place, "data")
        text = os.path.join(self.text, "part0.txt")
        processes.run_cli("data", "publish", text, "--held-out", "0", "--to",
                          "file://" + published, check=OK)
        before = _contents(place)
        for force in ((), ("--force",)):
            error = self.error(CONFLICT, "run", "export", "run", published,
                               *force)
            self.assertEqual(error["reason"], "NOT_OURS")
            self.assertIn("manifest.json", error["message"])
            self.assertEqual(_contents(place), before)
        # A file that no export wrote is in the way.
        config = os.path.join(place, "taken", "config.json")
        os.makedirs(os.path.dirname(config))
        with open(config, "w", encoding="ascii") as file:
            file.write("{}")
        before = _contents(place)
        error = self.error(CONFLICT, "run", "export", "run",
                           os.path.dirname(config), "--force")
        self.assertEqual(error["reason"], "NOT_OURS")
        self.assertIn(config, error["message"])
        self.assertEqual(_contents(place), before)
        # A person's files in the directory and beside it, by way of a link.
        mine = ("model.old/a", "model.tmp/b", "real/tokenizer.json")
        for name in mine:
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="ascii") as file:
                file.write(name)
        model = os.path.join(place, "model")
        os.symlink("real", model)
        for _ in range(2):
            self.data("run", "export", "run", model)
        self.assertTrue(os.path.islink(model))
        after = _contents(place)
        for name in mine:
            self.assertEqual(after[name], name.encode())
        self.assertIn("real/manifest.json", after)
        # What a person has changed since is theirs.
        config = os.path.join(model, "config.json")
        with open(config, "a", encoding="utf-8") as file:
            file.write("\n")
        error = self.error(CONFLICT, "run", "export", "run", model, "--force")
        self.assertEqual(error["reason"], "NOT_OURS")
        self.assertIn("config.json was changed", error["message"])
        with open(config, "wb") as file:
            file.write(after["real/config.json"])
        # Another commit.
        path = os.path.join(model, "manifest.json")
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        manifest["commit_seq"] -= 1
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        error = self.error(CONFLICT, "run", "export", "run", model)
        self.assertEqual(error["reason"], "EXPORT_DIFFERS")
        self.assertIn("--force", error["hint"])
        self.data("run", "export", "run", model, "--force")
        self.assertEqual(_contents(place), after)

    def test_an_export_says_which_server_it_waits_for_and_goes_on(self):
        cluster = self.cluster
        self.run_strict(cluster, self.run_values())
        model = os.path.join(cluster.directory, "model")
        address = cluster.server_address("server-1")
        cluster.kill("server-1")
        done = self.atoll("run", "export", "run", model, "--patience", "8s",
                          check=TIMEOUT)
        # A log is not a terminal: a line appears once per reason.
        who = "waiting for server server-1 at %s, at most 8s: " % address
        told = [line for line in done.stderr.splitlines()
                if line.startswith("waiting for")]
        self.assertTrue(told, done.stderr)
        for one, following in zip(told, told[1:]):
            self.assertNotEqual(one, following)
        for line in told:
            self.assertTrue(line.startswith(who), line)
            self.assertTrue(line.endswith(" (--patience; Ctrl-C stops it)"),
                            line)
        for ends in (True, False):
            export = self.begin("export-%s" % ends, "run", "export", "run",
                                model, "--patience", "5m", "--timeout", "1h")
            wait.until("it says what it waits for",
                       lambda: "waiting for server" in export.tail())
            if ends:
                coordinator = cluster.processes["coordinator"]
                coordinator.signal(signal.SIGSTOP)
                self.interrupt(export, FAILED)
                coordinator.signal(signal.SIGCONT)
                self.assertFalse(os.path.exists(model))
            else:
                cluster.start_server("server-1")
                self.assertEqual(export.wait(), 0, export.tail())
                self.assertTrue(os.path.exists(model))

    def test_who_waits_for_a_coordinator_says_so(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(self.run_values())
        watch = self.begin("watch", "run", "watch", "run")
        wait.until("it watches", lambda: "ACTIVE" in watch.tail())
        coordinator = cluster.processes["coordinator"]
        coordinator.signal(signal.SIGSTOP)
        self.addCleanup(coordinator.signal, signal.SIGCONT)
        who = ("waiting for coordinator %s, at most "
               % cluster.coordinator_address)
        ending = [(command, self.begin("-".join(command), *command,
                                       "--timeout", "10s"))
                  for command in (("run", "list"), ("run", "show", "run"),
                                  ("island", "list", "run"),
                                  ("run", "export", "run", "model"),
                                  ("run", "watch", "run"),
                                  ("replay", "run", "--from", "a"))]
        for command, process in ending:
            with self.subTest(command=command):
                self.assertIn(process.wait(), (TIMEOUT, CONNECTION))
                self.assertIn(who + "10s: it does not answer (--timeout; "
                              "Ctrl-C stops it)", process.tail())
        for name, command, code in (
                ("export", ("run", "export", "run", "model"), FAILED),
                ("import", ("run", "import", "run", "--model", "m"), FAILED),
                ("list", ("run", "list"), -signal.SIGINT),
                ("watch-again", ("run", "watch", "run"), OK)):
            with self.subTest(interrupts=command):
                waiting = self.begin(name, *command, "--timeout", "1h")
                wait.until("it says that it waits",
                           lambda: who + "1h: it does not answer (--timeout"
                           in waiting.tail())
                self.interrupt(waiting, code)
        island = cluster.start_island("run", "island-0")
        wait.until("the island says that it waits",
                   lambda: "has not answered yet" in island.tail())
        coordinator.signal(signal.SIGCONT)
        wait.until("the island has joined",
                   lambda: len(cluster.islands()) == 1)
        cluster.kill("coordinator")
        wait.until("the watch says that it waits",
                   lambda: who in watch.tail())
        cluster.start_coordinator()
        self.assertIsNone(watch.poll())


class InitTest(cluster_module.IntegrationTest):
    """`atoll-coordinator init`, and starts on directories without a log."""

    ID, OTHER = "0123456789abcdef" * 2, "f" * 32

    def path(self, *names):
        return os.path.join(self.root, *names)

    def run_it(self, *arguments, check):
        done = subprocess.run(
            [processes.binary(processes.COORDINATOR), *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=wait.PATIENCE_S, check=False)
        self.assertEqual(done.returncode, check, done.stderr)
        for line in done.stderr.splitlines():
            if self.root not in line:  # A path may be longer.
                self.assertLessEqual(len(line), 80, line)
        return done

    def init(self, directory, *arguments, check=OK):
        return self.run_it("init", "--data-dir", directory, *arguments,
                           check=check)

    def start(self, directory):
        """The words of a start that finds no log."""
        return self.run_it("--data-dir", directory, "--listen=127.0.0.1:0",
                           "--port-file=" + self.path("port"),
                           check=CONFLICT).stderr

    def test_a_start_without_a_log_leaves_nothing_and_names_init(self):
        missing, empty = self.path("missing"), self.path("empty")
        os.makedirs(empty + "/lost+found")
        for directory in (missing, empty):
            said = self.start(directory)
            self.assertIn("atoll-coordinator init --data-dir " + directory,
                          said)
            self.assertIn("not mounted", said)
            self.assertNotIn("This directory has a log", said)
        self.assertFalse(os.path.exists(missing))
        self.assertEqual(os.listdir(empty), ["lost+found"])
        self.assertFalse(os.path.exists(self.path("port")))
        # A typo: the directory beside it.
        self.init(self.path("cluster"))
        self.assertIn("log:\n  " + self.path("cluster"), self.start(missing))

    def test_init_makes_one_log_and_says_which_is_there(self):
        directory = self.path("c")
        made = self.init(directory, "--cluster-id", self.ID)
        self.assertEqual(made.stdout, self.ID + "\n")
        self.assertIn("atoll-coordinator --data-dir " + directory, made.stderr)
        self.assertRegex(self.init(self.path("d")).stdout, "^[0-9a-f]{32}\n$")

        def again():
            for words in ([], ["--cluster-id", self.ID]):
                done = self.init(directory, *words, check=CONFLICT)
                self.assertIn(self.ID, done.stderr)
                self.assertEqual(done.stdout, "")
                kept = self.init(directory, "--if-empty", *words)
                self.assertEqual((kept.stdout, kept.stderr),
                                 (self.ID + "\n", ""))
            kept = self.init(directory, "--if-empty", "--cluster-id",
                             self.OTHER)
            self.assertEqual(kept.stdout, self.ID + "\n")
            for word in ("WARN", self.ID, self.OTHER):
                self.assertIn(word, kept.stderr)

        again()
        self.cluster.start_coordinator(data_dir=directory)
        again()

    def test_init_keeps_out_of_what_is_not_a_coordinators(self):
        other = self.path("photos")
        os.makedirs(other)
        with open(other + "/a.jpg", "w", encoding="ascii") as file:
            file.write("x")
        for words in ([], ["--if-empty"]):
            self.assertIn(other + "/a.jpg", self.init(
                other, *words, check=CONFLICT).stderr)
        self.assertEqual(os.listdir(other), ["a.jpg"])
        self.init(other, "--cluster-id=x", check=INVALID_CONFIG)
        self.run_it("init", check=USAGE)
        said = self.run_it("init", "--help", check=OK).stdout
        for line in said.splitlines():
            self.assertLessEqual(len(line), 80, line)
        for flag in ("--data-dir", "--cluster-id", "--if-empty",
                     "--secret-file"):
            self.assertIn(flag, said)
        self.assertIn("init", self.run_it("--help", check=OK).stdout)

    def test_the_secret_is_written_once_and_printed_later(self):
        directory, secret = self.path("with-secret"), self.path("log.secret")
        self.init(directory, "--secret-file", secret)
        self.assertEqual(stat.S_IMODE(os.stat(secret).st_mode), 0o600)
        with open(secret, encoding="ascii") as file:
            text = file.read()
        self.assertRegex(text, "^[0-9a-f]{32}\n$")
        # It may be of a log that is lost.
        said = self.init(self.path("another"), "--secret-file", secret,
                         check=CONFLICT).stderr
        self.assertIn("atoll-coordinator restore", said)
        self.assertFalse(os.path.exists(self.path("another")))

        self.cluster.start_coordinator(data_dir=directory)

        def export(*words, check=OK):
            return self.run_it("secret", "--data-dir", directory, *words,
                               check=check)

        self.assertEqual(export().stdout, text)
        other = self.path("other")
        self.assertEqual(export("--output", other).stdout, "")
        with open(other, encoding="ascii") as file:
            self.assertEqual(file.read(), text)
        self.assertIn(other, export("--output", other, check=CONFLICT).stderr)
        self.run_it("secret", "--data-dir", self.path("none"), check=CONFLICT)
        self.run_it("secret", check=USAGE)

    def test_an_emptied_volume_with_the_same_id_is_another_cluster(self):
        cluster = self.cluster
        values = self.run_values()
        cluster.start_coordinator(cluster_id=self.ID)
        cluster.start_servers(2)
        cluster.create_run(values)
        spec = cluster.spec()
        cluster.kill("coordinator")
        shutil.rmtree(os.path.join(cluster.directory, "coordinator"))
        cluster.start_coordinator(cluster_id=self.ID)
        cluster.create_run_of(spec)
        fault = faults.wait_fault(cluster, "OTHER_CLUSTER")
        self.assertIn(self.ID, fault["expected"])
        self.assertIn("another log", fault["found"])


def _contents(directory):
    """The bytes of every file below `directory`, by its path there."""
    contents = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                contents[os.path.relpath(path, directory)] = file.read()
    return contents


def _flip(data, offset):
    return data[:offset] + bytes([data[offset] ^ 0x10]) + data[offset + 1:]


if __name__ == "__main__":
    cases.main()
