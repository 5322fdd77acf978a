#!/usr/bin/python3
"""atoll.hf with transformers. By hand: VENV/bin/python worker/sdk/python/hf_test.py

Debian's packages that the build needs have no torch: Bazel does not run this.
"""

import contextlib
import os
import signal
import socket
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange, Gone, Peer  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import atoll  # noqa: E402
import atoll.hf  # noqa: E402
from atoll import _module  # noqa: E402
from atoll import _store  # noqa: E402

_LENGTH, _BATCH, _BATCHES = 6, 2, 5
_ROUNDS, _STEPS = 3, 4
_SPEC = {"architecture": "llama", "vocab_size": 11, "hidden_size": 8,
         "intermediate_size": 12, "layer_count": 2, "head_count": 2,
         "kv_head_count": 1, "sequence_length": _LENGTH,
         "rope_theta": 5000.0, "rms_norm_eps": 1e-5, "tie_embeddings": False}


class Sequences(torch.utils.data.Dataset):
    """Sequences that follow from their index."""

    def __len__(self):
        return _BATCH * _BATCHES

    def __getitem__(self, index):
        tokens = (index + torch.arange(_LENGTH)**2) % _SPEC["vocab_size"]
        return {"input_ids": tokens,
                "labels": torch.where(tokens == 3, -100, tokens)}


def make_model():
    config = atoll.hf.model_config({"model": _SPEC})
    config.attention_dropout = 0.2  # Uses torch's generator.
    return transformers.AutoModelForCausalLM.from_config(config)


def make_trainer(folder, callbacks, **options):
    arguments = {"max_steps": 16, "learning_rate": 0.01, "use_cpu": True,
                 "per_device_train_batch_size": _BATCH, "report_to": "none",
                 "save_strategy": "no", "disable_tqdm": True,
                 "logging_strategy": "no", **options}
    return transformers.Trainer(
        make_model(), transformers.TrainingArguments(
            output_dir=os.path.join(folder, "hf"), **arguments),
        train_dataset=Sequences(), eval_dataset=Sequences(),
        callbacks=callbacks)


def shapes(model):
    return {name: list(tensor.shape) for name, tensor in
            _module.shared_tensors(model, "local").items()}


class ModelTest(cases.unittest.TestCase):
    """The tensors are those of worker/engine/model/parameter_layout.h."""

    def make(self, **changes):
        return transformers.AutoModelForCausalLM.from_config(
            atoll.hf.model_config({"model": {**_SPEC, **changes}}))

    def llama(self, tied):
        expected = {"model.embed_tokens.weight": [11, 8]}
        for layer in range(2):
            for name, shape in (
                    ("self_attn.q_proj", [8, 8]), ("self_attn.k_proj", [4, 8]),
                    ("self_attn.v_proj", [4, 8]), ("self_attn.o_proj", [8, 8]),
                    ("mlp.gate_proj", [12, 8]), ("mlp.up_proj", [12, 8]),
                    ("mlp.down_proj", [8, 12]), ("input_layernorm", [8]),
                    ("post_attention_layernorm", [8])):
                expected["model.layers.%d.%s.weight" % (layer, name)] = shape
        expected["model.norm.weight"] = [8]
        if not tied:
            expected["lm_head.weight"] = [11, 8]
        return expected

    def test_llama(self):
        for tied in (False, True):
            model = self.make(tie_embeddings=tied)
            self.assertEqual(shapes(model), self.llama(tied))
            self.assertEqual(model.config.rope_parameters["rope_theta"], 5000)
            self.assertEqual(model.config.rms_norm_eps, 1e-5)

    def test_gpt2(self):
        model = self.make(architecture="gpt2", kv_head_count=2,
                          tie_embeddings=True)
        expected = {"transformer.wte.weight": [11, 8],
                    "transformer.wpe.weight": [_LENGTH, 8]}
        for layer in range(2):
            for name, weight in (("ln_1", [8]), ("attn.c_attn", [8, 24]),
                                 ("attn.c_proj", [8, 8]), ("ln_2", [8]),
                                 ("mlp.c_fc", [8, 12]),
                                 ("mlp.c_proj", [12, 8])):
                prefix = "transformer.h.%d.%s." % (layer, name)
                expected[prefix + "weight"] = weight
                expected[prefix + "bias"] = weight[-1:]
        expected["transformer.ln_f.weight"] = [8]
        expected["transformer.ln_f.bias"] = [8]
        self.assertEqual(shapes(model), expected)

    def test_a_mixtral_is_refused(self):
        with self.assertRaisesRegex(atoll.Error, "'mixtral'"):
            self.make(architecture="mixtral")


class CallbackTest(cases.FolderCase):

    def setUp(self):
        super().setUp()
        os.environ["ATOLL_SOCKET"] = self.path("socket")
        torch.set_num_threads(1)

    def callback(self, **options):
        return atoll.hf.AtollCallback("nobody:1", run=fake_exchange.RUN,
                                      work_dir=self.path("work"), **options)

    def train(self, script, *others, options=None, **arguments):
        trainer = make_trainer(self.folder, [self.callback(
            **(options or {})), *others], **arguments)
        with FakeExchange(self.path("socket"), script):
            trainer.train()
        return trainer

    def begin(self, peer, **hello):
        peer.hello(1, **hello)
        peer.layout([shapes(make_model())])
        peer.ask("load", save_id="")
        peer.write(np.random.default_rng(5).normal(
            0, 0.3, len(peer.regions[0])))

    def test_the_run_s_end_stops_the_trainer(self):
        answers = []

        def script(peer):
            self.begin(peer)
            answers.append(peer.train(3))
            peer.ask("read", fragments=[0])
            answers.append(peer.train(2, step=3))
            peer.end()

        trainer = self.train(script, logging_strategy="steps", logging_steps=1)
        self.assertEqual(trainer.state.global_step, 5)
        losses = [row["loss"] for row in trainer.state.log_history
                  if "loss" in row]
        self.assertAlmostEqual(answers[0]["loss"], np.mean(losses[:3]), 3)
        self.assertAlmostEqual(answers[1]["loss"], np.mean(losses[3:]), 3)
        items = [Sequences()[i] for i in range(len(Sequences()))]
        labels = sum(int((item["labels"] != -100).sum()) for item in items)
        self.assertEqual(sum(int(a["token_count"]) for a in answers), labels)

    def test_a_place_gives_the_data_shard_before_the_trainer_is_made(self):
        answers = []

        def script(peer):
            peer.place(data_shard=1, data_shard_count=3)
            self.begin(peer, seq="2")
            answers.append(peer.train(5))
            peer.end()

        with FakeExchange(self.path("socket"), script):
            joined = atoll.join("nobody:1", run=fake_exchange.RUN,
                                work_dir=self.path("work"))
            self.assertEqual(joined.shard, 1)
            callback = atoll.hf.AtollCallback(joined=joined)
            make_trainer(self.folder, [callback]).train()
        self.assertTrue(callback.island.ended)
        # The Trainer has a sampler of its own; ten numbers are an epoch.
        self.assertRegex(answers[0].get("index_digest", ""), "^[0-9a-f]{64}$")
        with self.assertRaisesRegex(atoll.Error, "atoll.join only"):
            make_trainer(self.folder, [self.callback(joined=joined)]).train()

    def test_a_step_counts_what_the_run_weighs_by(self):
        def train(unit, **arguments):
            def script(peer):
                self.begin(peer, weight_unit=unit)
                answers.append(peer.train(2)["token_count"])
                peer.end()

            self.setUp()  # A socket of its own.
            self.train(script, **arguments)

        answers = []
        train("steps", gradient_accumulation_steps=2)
        train("samples", gradient_accumulation_steps=2)
        self.assertEqual(answers, ["2", str(4 * _BATCH)])

    def test_without_labels_a_run_by_tokens_is_refused_at_the_first_step(self):
        class NoLabels(transformers.Trainer):

            def compute_loss(self, model, inputs, **_):
                labels = inputs.pop("labels")
                logits = model(**inputs).logits
                return torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten())

        def script(peer):
            self.begin(peer, weight_unit="tokens")
            self.assertEqual(peer.train(3)["step_count"], "0")
            peer.end(complete=False)

        callback = self.callback()
        trainer = make_trainer(self.folder, [callback])
        trainer.__class__ = NoLabels
        with FakeExchange(self.path("socket"), script):
            with self.assertRaisesRegex(atoll.Error,
                                        "AtollCallback counts the labels"):
                trainer.train()
            self.assertEqual(trainer.state.global_step, 1)
            callback.island.close()

    def test_of_a_complete_run_it_has_the_parameters_and_trains_no_step(self):
        def script(peer):
            peer.hello(1)
            peer.layout([shapes(make_model())])
            peer.write(0.125)
            peer.end()

        trainer = self.train(script)
        self.assertTrue(all(torch.all(p == 0.125)
                            for p in trainer.model.parameters()))

    def test_a_checkpoint_of_the_trainer_is_refused(self):
        def script(peer):
            self.begin(peer)
            peer.train(2)
            peer.end()

        trainer = self.train(script, save_strategy="steps", save_steps=1)
        with self.assertRaisesRegex(atoll.Error, "(?s)at step 2 .*Leave out "
                                    "resume_from_checkpoint"):
            trainer.train(resume_from_checkpoint=True)

    def test_the_trainer_s_end_leaves_the_run(self):
        def script(peer):
            self.begin(peer)
            answer = peer.ask("train", step="0", step_count="9", lr_scale=1.0)
            self.assertTrue(answer["leave"])
            self.assertEqual(answer["step_count"], "2")
            peer.end(complete=False)

        self.train(script, max_steps=2)

    def test_a_step_of_several_batches_is_one(self):
        def script(peer):
            self.begin(peer)
            answer = peer.train(2)
            self.assertEqual(answer["token_count"], str(sum(
                seen[2 * step + part] for step in range(2)
                for part in range(2))))
            peer.end()

        class Watch(transformers.TrainerCallback):

            def on_train_begin(self, *_, model, **__):
                model.register_forward_pre_hook(
                    lambda _, args, kwargs: seen.append(
                        int((kwargs["labels"] != -100).sum())),
                    with_kwargs=True)

        seen = []
        self.train(script, Watch(), gradient_accumulation_steps=2)
        self.assertEqual(len(seen), 4)

    def test_the_rate_is_scaled_for_a_step(self):
        rates = []

        class Watch(transformers.TrainerCallback):

            def on_pre_optimizer_step(self, *_, optimizer, **__):
                rates.append(optimizer.param_groups[0]["lr"])

        def script(peer):
            self.begin(peer)
            for step, scale in ((0, 1.0), (1, 0.5), (2, 1.0)):
                peer.ask("train", step=str(step), step_count="1",
                         lr_scale=scale)
            peer.end()

        self.train(script, Watch(), lr_scheduler_type="constant")
        self.assertEqual(rates, [0.01, 0.005, 0.01])

    def test_the_trainer_evaluates(self):
        def script(peer):
            self.begin(peer)
            first = peer.ask("evaluate")["loss"]
            peer.train(2)
            self.assertLess(peer.ask("evaluate")["loss"], first)
            peer.train(1)
            peer.end()

        trainer = make_trainer(self.folder, [self.callback(
            evaluate=lambda: trainer.evaluate()["eval_loss"])],
                               learning_rate=0.05)
        with FakeExchange(self.path("socket"), script):
            trainer.train()

    def test_data_without_a_length_is_read_again_at_its_end(self):
        for parts in (1, 2):
            os.environ["ATOLL_SOCKET"] = self.path("of-%d" % parts)
            seen = []

            def script(peer):
                self.begin(peer)
                peer.train(6)
                peer.ask("save", save_id="six")
                peer.end()

            data = Stream()
            callback = atoll.hf.AtollCallback(
                "nobody:1", run=fake_exchange.RUN,
                work_dir=self.path("work-%d" % parts))
            trainer = make_trainer(self.folder, [callback, Watch(seen)],
                                   gradient_accumulation_steps=parts)
            trainer.train_dataset = data
            with FakeExchange(os.environ["ATOLL_SOCKET"], script):
                trainer.train()
            batches = [list(range(i, i + _BATCH)) for i in
                       range(0, _BATCH * _BATCHES, _BATCH)]
            self.assertEqual(seen[:6 * parts], (3 * batches)[:6 * parts])
            self.assertEqual(callback._position.state_dict(), {
                "step": 6, "epoch": 6 * parts // _BATCHES,
                "batch": 6 * parts % _BATCHES})

    def test_data_without_a_batch_is_refused(self):
        class Empty(torch.utils.data.IterableDataset):

            def __iter__(self):
                return iter([])

        def script(peer):
            self.begin(peer)
            peer.ask("train", step="0", step_count="9", lr_scale=1.0)

        trainer = make_trainer(self.folder, [self.callback()])
        trainer.train_dataset = Empty()
        with self.assertRaisesRegex((atoll.Error, ValueError),
                                    "no batches|not contain any data"):
            with FakeExchange(self.path("socket"), script):
                trainer.train()

    def test_a_step_that_fp16_skips_does_not_count(self):
        for optim in ("adamw_torch", "adamw_torch_fused"):
            os.environ["ATOLL_SOCKET"] = self.path(optim)
            events = []

            def script(peer):
                self.begin(peer)
                self.assertEqual(peer.train(3)["step_count"], "3")
                peer.end()

            callback = atoll.hf.AtollCallback(
                "nobody:1", run=fake_exchange.RUN, on_event=events.append,
                work_dir=self.path("work-" + optim))
            trainer = make_trainer(self.folder, [callback], max_grad_norm=0,
                                   optim=optim)
            # As with fp16=True, which needs a GPU.
            trainer.accelerator.scaler = torch.amp.GradScaler("cpu",
                                                              init_scale=4.0)
            factors = [1.0, float("inf")]  # Of gradients; then 1.
            next(trainer.model.parameters()).register_hook(
                lambda grad: grad * (factors.pop(0) if factors else 1.0))
            with FakeExchange(self.path(optim), script):
                trainer.train()
            self.assertEqual([e["event"] for e in events].count("skipped"), 1)
            self.assertEqual(trainer.state.global_step, 4)
            self.assertIn("scaler",
                          callback.island._state.capture()["objects"])


class Stream(torch.utils.data.IterableDataset):
    """The sequences of Sequences, without their number."""

    def __iter__(self):
        return (Sequences()[i] for i in range(len(Sequences())))


class Watch(transformers.TrainerCallback):
    """Notes the number of each sequence of the model's batches."""

    def __init__(self, seen):
        self._seen = seen

    def on_train_begin(self, *_, model, **__):
        model.register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, _, args, kwargs):
        self._seen.append(kwargs["input_ids"][:, 0].tolist())


class Exchange:
    """The exchange of a strict run with one island, with a durable record."""

    def __init__(self, drop_after=None):
        self._left = drop_after  # Requests until it drops the connection once.
        self._record = ("", 0, None)
        self._saves = 0
        self.losses = {}
        self.request_count = 0

    def _ask(self, peer, kind, **body):
        answer = peer.ask(kind, **body)
        self.request_count += 1
        if self.request_count == self._left:
            raise Gone("dropped")
        return answer

    def serve(self, peer):
        """Plays the run from the record to its end. Gone: must come again."""
        peer.hello(1)
        peer.layout([shapes(make_model())])
        save_id, version, weights = self._record
        if weights is None:
            weights = np.random.default_rng(5).normal(
                0, 0.3, len(peer.regions[0])).astype(np.float32)
        self._ask(peer, "load", save_id=save_id)
        while version < _ROUNDS:
            peer.regions[0][:] = weights
            self._ask(peer, "write", fragments=[0])
            answer = self._ask(peer, "train", step=version * _STEPS,
                               step_count=_STEPS, version=version)
            assert self.losses.setdefault(
                version, answer["loss"]) == answer["loss"], (version, answer)
            self._ask(peer, "read", fragments=[0])
            weights = (weights + peer.regions[0]) / np.float32(2)
            version += 1
            self._saves += 1
            save_id = "save-%d" % self._saves
            self._ask(peer, "save", save_id=save_id)
            self._record = (save_id, version, weights)
        peer.end()

    @property
    def weights(self):
        return self._record[2].tobytes()


class Die(transformers.TrainerCallback):
    """kill -9 of the process before its step `number` is told."""

    def __init__(self, number):
        self._left = number

    def on_step_end(self, *_, **__):
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class KillTest(cases.FolderCase):
    """A death of the trainer, or of its exchange, changes no bit."""

    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        make_trainer(self.folder, [])  # Each fork then has the modules.

    def fork(self, path, work, step, rename):
        """A trainer that dies before a step, or at a state's rename."""
        child = os.fork()
        if child:
            return child
        try:
            os.environ["ATOLL_SOCKET"] = path
            torch.set_num_threads(1)
            do_rename, left = os.rename, [rename]

            def dying(*names):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                do_rename(*names)

            _store.os.rename = dying
            make_trainer(work, [Die(step), atoll.hf.AtollCallback(
                "nobody:1", run=fake_exchange.RUN, work_dir=work)]).train()
            os._exit(0)
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
            os._exit(1)

    def play(self, deaths=(), drop_after=None):
        """Trainers, each after the other's death, to the run's end.

        Args:
          deaths: (step, rename) for each life that ends with a death.
        """
        work = tempfile.mkdtemp(dir=self.folder)
        path = work + ".s"
        exchange, lives = Exchange(drop_after), list(deaths) + [(0, 0)]
        child = None

        def end():
            if child is not None:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

        with contextlib.ExitStack() as at_end, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(fake_exchange.PATIENCE_S)
            listener.bind(path)
            listener.listen(4)
            at_end.callback(end)
            while True:
                if child is None:
                    child = self.fork(path, work, *lives.pop(0))
                sock, _ = listener.accept()
                sock.settimeout(fake_exchange.PATIENCE_S)
                peer = Peer(sock)
                try:
                    exchange.serve(peer)
                    peer.wait_for_close()
                    status, child = os.waitpid(child, 0)[1], None
                    self.assertEqual(status, 0)
                    break
                except Gone as gone:
                    if str(gone) != "dropped":
                        status, child = os.waitpid(child, 0)[1], None
                        self.assertEqual(status, signal.SIGKILL)
                finally:
                    peer.close()
        self.assertEqual(lives, [])
        return exchange

    def test_kills(self):
        undisturbed = self.play()
        # Step 5 ends an epoch of the data; each save has one rename.
        for deaths in ([(2, 0)], [(5, 0)], [(6, 0)], [(11, 0)],
                       [(6, 0), (3, 0)], [(0, 2)], [(0, 3)]):
            with self.subTest(deaths=deaths):
                got = self.play(deaths)
                self.assertEqual(got.losses, undisturbed.losses)
                self.assertEqual(got.weights, undisturbed.weights)

    def test_loss_of_the_exchange_after_every_answer(self):
        undisturbed = self.play()
        for number in range(1, undisturbed.request_count + 1):
            with self.subTest(number=number):
                got = self.play(drop_after=number)
                self.assertEqual(got.losses, undisturbed.losses)
                self.assertEqual(got.weights, undisturbed.weights)


if __name__ == "__main__":
    cases.main()
