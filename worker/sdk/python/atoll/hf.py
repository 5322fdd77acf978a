"""For models and the Trainer of Hugging Face's `transformers`.

The only module of this package that imports transformers: import it by name.
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Mapping

import transformers

from . import _state, _torch
from .errors import Error
from .island import Island


def model_config(spec: Mapping[str, Any]) -> Any:
    """The configuration of a run's model, as an export of the run has it.

    AutoModelForCausalLM.from_config makes the model. Its parameters have the
    names and shapes of the run's tensors.

    Args:
      spec: The run's RunSpec (proto/atoll/v1/run.proto), as in JSON.

    Error UNKNOWN_MODEL: transformers has no such model, or has its parameters
    in other tensors.
    """
    model = spec["model"]
    if model["architecture"] == "llama":
        return transformers.LlamaConfig(
            vocab_size=model["vocab_size"], hidden_size=model["hidden_size"],
            intermediate_size=model["intermediate_size"],
            num_hidden_layers=model["layer_count"],
            num_attention_heads=model["head_count"],
            num_key_value_heads=model["kv_head_count"],
            max_position_embeddings=model["sequence_length"],
            rope_parameters={"rope_type": "default",
                             "rope_theta": float(model["rope_theta"])},
            rms_norm_eps=model["rms_norm_eps"],
            tie_word_embeddings=model["tie_embeddings"],
            bos_token_id=None, eos_token_id=None)
    if model["architecture"] == "gpt2":
        return transformers.GPT2Config(
            vocab_size=model["vocab_size"], n_embd=model["hidden_size"],
            n_inner=model["intermediate_size"], n_layer=model["layer_count"],
            n_head=model["head_count"], n_positions=model["sequence_length"],
            layer_norm_epsilon=model["rms_norm_eps"],
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=None, eos_token_id=None)
    raise Error("no model of transformers has the tensors of the architecture "
                "%r" % model["architecture"], reason="UNKNOWN_MODEL",
                code="UNIMPLEMENTED", hint="Give `model` and `names`.")


class _Position:
    """The Trainer's position: its step, and the next batch of its data."""

    def __init__(self, epoch_size: int | None):
        """`epoch_size`: batches; None: the loader's end tells."""
        self.step = self.epoch = self.batch = 0
        self._epoch_size = epoch_size
        self.is_restored = False  # The loader is elsewhere.
        self.is_ended = False     # There is nothing to train.

    def advance(self, step: int, batch_count: int) -> None:
        self.step = step
        self.batch += batch_count
        if self._epoch_size is not None and self.batch >= self._epoch_size:
            self.epoch, self.batch = self.epoch + 1, 0

    def end_epoch(self, read_count: int) -> None:
        """The loader ends after `read_count` batches of this epoch.

        Those that the open step has read are then before the new epoch.
        """
        if self._epoch_size is None:
            if not read_count:
                raise Error("the Trainer's data set gives no batches",
                            code="INVALID_ARGUMENT")
            self.epoch, self.batch = self.epoch + 1, self.batch - read_count

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step, "epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, saved: Mapping[str, int]) -> None:
        self.step, self.epoch, self.batch = (
            saved["step"], saved["epoch"], saved["batch"])
        self.is_restored = True


class _FromPosition:
    """A base of a data loader: its batches follow a position, without end.

    The Trainer counts the batches of an epoch, and never asks for more.
    """

    position: _Position

    def __iter__(self) -> Iterator[Any]:
        while not self.position.is_ended:
            position = self.position
            position.is_restored = False
            self.iteration = position.epoch  # Seeds the order, in accelerate.
            batches = super().__iter__()  # type: ignore[misc]
            read_count = max(0, position.batch)
            if read_count:
                with _state.KeptRandom():  # To skip batches may use some.
                    first = list(itertools.islice(batches, read_count,
                                                  read_count + 1))
                batches = itertools.chain(first, batches)
            for batch in batches:
                read_count += 1
                yield batch
                if position.is_restored:
                    break
            else:
                position.end_epoch(read_count)


class _Losses:
    """Losses and weights of the model's forward passes since `take`."""

    def __init__(self) -> None:
        self._losses: list[Any] = []
        self._tokens: Any = None
        self._samples = 0
        self._is_share = False

    def add(self, model: Any, _: Any, inputs: Mapping[str, Any],
            outputs: Any) -> None:
        """A forward hook of the model."""
        if not model.training:
            return
        # With the number of items of the whole step, the model returns its
        # share of the step's loss.
        self._is_share = inputs.get("num_items_in_batch") is not None
        loss = outputs["loss"] if "loss" in outputs else None
        if loss is not None:
            self._losses.append(loss.detach().clone())
        labels = inputs.get("labels")
        if labels is not None:
            tokens = (labels != -100).sum()
            self._tokens = (tokens if self._tokens is None else
                            self._tokens + tokens)
        self._samples += next((len(x) for x in inputs.values()
                               if getattr(x, "ndim", 0)), 0)

    def take(self) -> dict[str, Any]:
        """A step's mean loss, tokens and samples; None: unknown."""
        losses, tokens, samples = self._losses, self._tokens, self._samples
        self._losses, self._tokens, self._samples = [], None, 0
        loss = (sum(losses) / (1 if self._is_share else len(losses))
                if losses else None)
        return {"loss": loss, "tokens": tokens, "samples": samples or None}


class AtollCallback(transformers.TrainerCallback):
    """Makes the training of a Trainer an island of a run.

        trainer = Trainer(model, TrainingArguments(max_steps=...), ...,
                          callbacks=[atoll.hf.AtollCallback("HOST:7400",
                                                            run="spring")])
        trainer.train()

    The island begins with the training and ends with it; the run's end stops
    the Trainer. If the run was complete before, the model has the final
    parameters, and no step is trained. Optimizer, scaler and the Trainer's
    position are its state; its scheduler follows the run's clock. The loss is
    the one that the model returns. A step's tokens are its labels other than
    -100; its samples are the rows of the model's first input.

    Leave out resume_from_checkpoint: the island's own state continues. A
    restart repeats the same bits, if an item of the data set uses no random
    generator, and gradient_accumulation_steps divides the batches of an epoch.
    It reads the batches of the epoch again that came before its position. The
    exchange sees an exception in the training as a death of the process.

    A data set without a length (IterableDataset) is read again at its end. With
    fp16 the gradients' scale is a part of the state, and a step that it skips
    does not count.

    Attributes:
      island: The Island, once the training has begun.
    """

    island: Island

    def __init__(self, address: str | None = None, *, run: str | None = None,
                 state: Mapping[str, Any] | None = None, **options: Any):
        """
        Args:
          address, run: As for Island; or joined=..., what atoll.join has
            returned.
          state: More objects, as for Island.
          **options: Others of Island.
        """
        self._address = address
        self._options = {"run": run, **options}
        self._state = dict(state or {})

    def on_train_begin(self, args, state, control, *, model, optimizer,
                       lr_scheduler, train_dataloader, **_):
        if state.global_step:
            raise Error("the Trainer has resumed from a checkpoint, at step %d"
                        % state.global_step, reason="RESUMED",
                        code="FAILED_PRECONDITION",
                        hint="Leave out resume_from_checkpoint: the island "
                        "continues from its own state, or has the parameters "
                        "of a complete run.")
        try:
            epoch_size = len(train_dataloader)
        except TypeError:
            epoch_size = None
        self._position = train_dataloader.position = _Position(epoch_size)
        # An assignment would find accelerate's property of that name.
        object.__dict__["__class__"].__set__(train_dataloader, type(
            "DataLoader", (_FromPosition, type(train_dataloader)), {}))
        self._losses = _Losses()
        self._hook = model.register_forward_hook(self._losses.add,
                                                 with_kwargs=True)
        self._is_skipped = False
        scaler = getattr(optimizer, "scaler", None)
        if scaler is not None:
            # accelerate does not see that a fused optimizer skips a step.
            optimizer.optimizer.register_step_post_hook(self._look)
        self.island = Island(
            self._address, model=model, scheduler=lr_scheduler,
            **self._options, state={
                **self._state, "optimizer": optimizer,
                "position": self._position,
                **({"scaler": scaler} if scaler is not None else {})})
        self.island._indices.watch(train_dataloader)
        self.island.start()
        # Without a batch the Trainer trains no step.
        self._position.is_ended = self.island.ended
        state.global_step = self._position.step

    def on_pre_optimizer_step(self, args, state, control, *, optimizer, **_):
        self._rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self.island.lr_scale

    def on_optimizer_step(self, args, state, control, *, optimizer, **_):
        for group, rate in zip(optimizer.param_groups, self._rates):
            group["lr"] = rate

    def _look(self, optimizer, *_):
        self._is_skipped = _torch.found_inf(optimizer)

    def on_step_end(self, args, state, control, *, optimizer=None, **_):
        self._position.advance(state.global_step,
                               args.gradient_accumulation_steps)
        if self._is_skipped or getattr(optimizer, "step_was_skipped", False):
            self._losses.take()
            self.island.tell_skipped()
            return
        if not self.island.step(**self._losses.take()):
            control.should_training_stop = True
        state.global_step = self._position.step  # A restore may change it.

    def on_train_end(self, args, state, control, **_):
        self._hook.remove()
        self.island.close()
