#!/usr/bin/python3
"""A trainer of Python's standard library alone, written from proto/TRAINER.md.

    stdlib_trainer.py SOCKET WORK_DIR [FIRST_SAMPLE]

It fits y = w x + b, with the tensors "w" and "b", by SGD with momentum. It
makes samples from their numbers; the island's begin at FIRST_SAMPLE.
"""

import array
import json
import math
import mmap
import os
import random
import select
import socket
import sys
import time

BATCH = 8             # Samples of a step.
LEARNING_RATE = 0.05
MOMENTUM = 0.5
LOOK_S = 0.05         # Between two looks at the socket while it trains.
GIVE_UP_S = 600.0
ACROSS = 0.5          # b of the samples; w is 1, 2, 3, ...


class Lost(Exception):
    """The connection has closed."""


class Trainer:
    def __init__(self, work_dir, first_sample):
        self.folder = os.path.join(work_dir, "states")
        os.makedirs(self.folder, exist_ok=True)
        self.folder_file = os.open(self.folder, os.O_RDONLY)
        self.first_sample = first_sample
        self.position = 0   # Steps that this trainer has done.
        self.speeds = {}    # Name: momentum of each element, f32.
        self.saves = []     # Ids of the saved states, the newest last.

    # The model. Tensors are memoryviews of f32, into the regions.

    def sample(self, number):
        generator = random.Random(number)
        x = [generator.uniform(-1, 1) for _ in self.tensors["w"]]
        return x, ACROSS + sum((i + 1) * v for i, v in enumerate(x))

    def loss(self, first, gradients=None):
        """Mean squared error of a batch; adds to `gradients` if given."""
        w, b = self.tensors["w"], self.tensors["b"]
        total = 0.0
        for number in range(first, first + BATCH):
            x, y = self.sample(number)
            error = sum(a * v for a, v in zip(w, x)) + b[0] - y
            total += error * error / BATCH
            if gradients:
                gradients["b"][0] += 2 * error / BATCH
                for i, v in enumerate(x):
                    gradients["w"][i] += 2 * error * v / BATCH
        return total

    def train_step(self, scale):
        gradients = {n: [0.0] * len(t) for n, t in self.tensors.items()}
        first = self.first_sample + self.position * BATCH
        loss = self.loss(first, gradients)
        for name, tensor in self.tensors.items():
            speed = self.speeds.setdefault(
                name, array.array("f", bytes(4 * len(tensor))))
            for i, gradient in enumerate(gradients[name]):
                speed[i] = MOMENTUM * speed[i] + gradient
                tensor[i] -= LEARNING_RATE * scale * speed[i]
        self.position += 1
        return loss

    def save(self, name):
        state = {"position": self.position, "run_uid": self.run_uid,
                 "speeds": {n: s.tobytes().hex()
                            for n, s in self.speeds.items()}}
        path = os.path.join(self.folder, name)
        with open(path + ".tmp", "w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".tmp", path)
        os.fsync(self.folder_file)

    def keep(self, names):
        for name in os.listdir(self.folder):
            if name not in names and name != "_initial":
                os.unlink(os.path.join(self.folder, name))
        self.saves = names

    def load(self, name):
        with open(os.path.join(self.folder, name or "_initial")) as file:
            state = json.load(file)
        if state["run_uid"] != self.run_uid:
            sys.exit("%s is of another run" % self.folder)
        self.position = state["position"]
        self.speeds = {n: array.array("f", bytes.fromhex(s))
                       for n, s in state["speeds"].items()}

    def send(self, seq, kind, **body):
        packet = json.dumps({"seq": str(seq), kind: body}).encode()
        try:
            self.sock.send(packet, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise Lost() from error

    def receive(self):
        """The next message: its seq, kind, body, and file descriptors."""
        try:
            packet, files, _, _ = socket.recv_fds(self.sock, 65536, 1)
        except OSError as error:
            raise Lost() from error
        if not packet:
            raise Lost()
        message = json.loads(packet)
        seq = int(message.pop("seq", 0))
        (kind, body), = message.items()
        if kind == "error":
            sys.exit("the exchange cannot go on: %s" % body.get("message"))
        return seq, kind, body, files

    def on_layout(self, body, files):
        if files:
            self.region = memoryview(mmap.mmap(
                files[0], 4 * int(body["element_count"]))).cast("f")
            os.close(files[0])
        for tensor in body.get("tensors", []):
            size = math.prod(int(d) for d in tensor.get("shape", []))
            begin = int(tensor.get("element_offset", 0))
            self.tensors[tensor["name"]] = self.region[begin:begin + size]

    def on_train(self, seq, body):
        """Trains, and answers. False: the island has ended meanwhile."""
        losses, wanted = [], int(body["step_count"])
        look_at = time.monotonic() + LOOK_S
        while len(losses) < wanted:
            losses.append(self.train_step(float(body.get("lr_scale", 1))))
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                if select.select([self.sock], [], [], 0)[0]:
                    if self.receive()[1] == "end":
                        return False
                    break  # An interrupt.
                self.send(seq, "progress", step_count=str(len(losses)))
        mean = sum(losses) / len(losses)
        self.send(seq, "train", step_count=str(len(losses)),
                  token_count=str(BATCH * len(losses)),
                  loss=mean if abs(mean) < float("inf") else "NaN")
        return True

    def serve(self):
        """One connection, until the island's end."""
        self.send(1, "hello", version=1)
        self.run_uid = self.receive()[2]["run_uid"]
        self.tensors = {}
        if not os.path.exists(os.path.join(self.folder, "_initial")):
            self.save("_initial")
        while True:
            seq, kind, body, files = self.receive()
            answer = {}
            if kind == "end" or (kind == "train" and
                                 not self.on_train(seq, body)):
                return
            if kind in ("train", "interrupt"):
                continue
            if kind == "layout":
                self.on_layout(body, files)
            elif kind == "save":
                self.save(body["save_id"])
                self.keep(self.saves[-1:] + [body["save_id"]])
                answer = {"save_id": body["save_id"]}
            elif kind == "load":
                self.load(body.get("save_id", ""))
                self.keep([n for n in [body.get("save_id", "")] if n])
            elif kind == "evaluate":
                answer = {"loss": self.loss(1 << 40), "token_count": str(BATCH)}
            self.send(seq, kind, **answer)  # `read`, `write`: only this.


def main(path, work_dir, first_sample="0"):
    trainer = Trainer(work_dir, int(first_sample))
    lost_at = time.monotonic()
    while time.monotonic() < lost_at + GIVE_UP_S:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            if sock.connect_ex(path) == 0:
                trainer.sock = sock
                try:
                    return trainer.serve()
                except Lost:
                    lost_at = time.monotonic()
        time.sleep(0.1)
    sys.exit("no exchange at %s for %.0f s" % (path, GIVE_UP_S))


if __name__ == "__main__":
    main(*sys.argv[1:])
