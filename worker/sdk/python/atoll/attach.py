"""Makes a training loop an island by hooks of its optimizer."""

from __future__ import annotations

import logging
import sys
import weakref
from types import FrameType
from typing import Any, Callable, Mapping, Sequence

from . import _torch
from ._forward import Passes, Weight
from .errors import Error, RunEnded
from .island import Island

_MARK = "_atoll_attachment"  # An attribute of attached optimizers.


def attach(model: Any, optimizer: Any, *, run: str | None = None,
           coordinator: str | None = None, scheduler: Any = None,
           scaler: Any = None, weight: Weight | None = None,
           state: Mapping[str, Any] | None = None,
           **options: Any) -> Island:
    """Joins a run with a training loop of PyTorch as it is.

        island = atoll.attach(model, optimizer, run="spring")
        for x, y in island.batches(loader):
            loss_fn(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    Waits until the run begins; then the model has its parameters. From then on
    a hook counts each step of the optimizer and, when a round is due, exchanges
    parameters with the other islands.

    At the run's end the model gets the final parameters. `island.batches` then
    ends, and `island.ended` is true. A loop that trains on gets RunEnded from
    the optimizer's next step, before it changes anything.

    A closure is evaluated once a step, as Lightning has it. An optimizer that
    needs more (LBFGS), or steps inside backward, is refused: make an Island. So
    is the first step of another optimizer of the model's parameters.

    Args:
      model: The module that the loop calls, with the optimizer's parameters.
      optimizer: A torch optimizer, or the one that accelerate has made of it.
        Or several: a step is done when each of them has stepped.
      run: The run's id; not with joined=..., an option of Island.
      coordinator: HOST:PORT; default: ATOLL_COORDINATOR, or this machine.
      scheduler: An LRScheduler of torch, as it is, or several: they follow the
        run's clock, as in Island, a step at each step of the optimizer. The
        loop's own calls of `step` do nothing, and must not be more rare.
      scaler: The GradScaler of mixed precision, which becomes a part of the
        state. A step that it skips is told, and not counted. accelerate's
        optimizer has it.
      weight: (args, kwargs) of a forward pass of `model` that trains -> the
        tokens or samples that it counts for. Default: the elements of
        `input_ids`, or of a first tensor of integers; or its first dimension. A
        run that weighs by steps asks for none.
      state: More objects, as in Island: the loader, or an optimizer whose
        steps do not count. A save takes them as they are when the optimizer has
        stepped: what the loop changes after it, such as an average of the
        parameters, needs an Island.
      **options: Others of Island.

    Returns the Island, whose `step` the loop does not call. It leaves the run
    at the end of the program, at SIGTERM or by `close`; one of several ranks
    only by `close`, on each of them. As a `with` block it closes at the end,
    and tells the exchange and the other ranks of an exception.

    Error: an optimizer is refused, or what Island and its start raise.
    """
    given = (list(optimizer) if isinstance(optimizer, (list, tuple)) else
             [optimizer])
    if not given:
        raise Error("attach needs an optimizer", code="INVALID_ARGUMENT")
    if run is None and options.get("joined") is None:
        raise Error("attach needs a run", code="INVALID_ARGUMENT")
    optimizers = [_optimizer_in(thing) for thing in given]
    for thing in optimizers:
        _refuse(thing)
    for wrapper, thing in zip(given, optimizers):
        if wrapper is not thing:
            _refuse_wrapper(wrapper, thing)
    for thing in optimizers:
        before = getattr(thing, _MARK, None)
        if before is not None:
            before.remove()
    scaler = scaler or next(filter(None, (
        getattr(thing, "scaler", None) for thing in given)), None)
    objects = ({"optimizer": optimizers[0]} if len(optimizers) == 1 else
               {"optimizer.%d" % i: o for i, o in enumerate(optimizers)})
    if scaler is not None:
        objects["scaler"] = scaler
    for name, thing in (state or {}).items():
        if _steps_each_step(_scheduler_in(thing)):
            raise Error("state[%r] is a scheduler, which steps after a save" %
                        name, reason="UNSUPPORTED_STATE",
                        code="INVALID_ARGUMENT",
                        hint="Give it as scheduler=...")
    schedulers = [_scheduler_in(thing) for thing in (
        scheduler if isinstance(scheduler, (list, tuple)) else [scheduler])
                  if thing is not None]
    if schedulers:
        options["scheduler"] = schedulers
    address = coordinator if run is None else coordinator or ""
    island = Island(address, run=run, model=model,
                    state={**objects, **(state or {})}, **options)
    island.start()
    if not schedulers and any(
            getattr(thing.step, "_wrapped_by_lr_sched", False)
            for thing in optimizers):
        island._news.tell("warned", "the optimizer has a scheduler that "
                          "atoll.attach was not given: it begins anew in a "
                          "program that starts again", logging.WARNING)
    attachment = _Attachment(
        island, model, optimizers,
        [_optimizer_in(thing) for thing in (state or {}).values()], schedulers,
        scaler,
        Passes(model, island._trainer.weight_unit, weight),
        list(model.buffers()) if options.get("buffers") == "average" else [])
    for thing in optimizers:
        setattr(thing, _MARK, attachment)
    return island


def _unwrapped(thing: Any, name: str, kind: type) -> Any:
    """The object that accelerate or Lightning has wrapped as `name`."""
    while isinstance(getattr(thing, name, None), kind):
        thing = getattr(thing, name)
    return thing


def _optimizer_in(thing: Any) -> Any:
    return _unwrapped(thing, "optimizer", _torch.loaded().optim.Optimizer)


def _scheduler_in(thing: Any) -> Any:
    return _unwrapped(thing, "scheduler",
                      _torch.loaded().optim.lr_scheduler.LRScheduler)


def _steps_each_step(thing: Any) -> bool:
    schedulers = _torch.loaded().optim.lr_scheduler
    return isinstance(thing, schedulers.LRScheduler) and not isinstance(
        thing, schedulers.ReduceLROnPlateau)


def _refuse(optimizer: Any) -> None:
    """Error: hooks of this optimizer cannot count its steps."""
    torch = _torch.loaded()
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise Error("%s is not a torch optimizer" % type(optimizer).__name__,
                    reason="UNKNOWN_OPTIMIZER", code="INVALID_ARGUMENT",
                    hint="Give the torch optimizer that it steps, or make an "
                    "atoll.Island and call its step once a step.")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise _closure(optimizer)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if getattr(parameter, "_in_backward_optimizers", None):
                raise _in_backward(optimizer)


def _refuse_wrapper(wrapper: Any, optimizer: Any) -> None:
    """Error: it has more state than the optimizer that it steps."""
    read = getattr(type(wrapper), "state_dict", None)
    if read in (None, _torch.loaded().optim.Optimizer.state_dict):
        return  # It has none, or only that of its base class.
    if set(wrapper.state_dict()) != set(optimizer.state_dict()):
        raise Error("%s saves a state of its own, besides that of its %s" %
                    (type(wrapper).__name__, type(optimizer).__name__),
                    reason="WRAPPED_OPTIMIZER", code="UNIMPLEMENTED",
                    hint="Make an atoll.Island with it in state=... and call "
                    "its step after each step.")


def _refuse_step(*_: Any, **__: Any) -> bool:
    raise Error("atoll.attach counts the steps: with a call of island.step "
                "each would count twice", reason="ATTACHED",
                code="FAILED_PRECONDITION", hint="Leave the call out, or make "
                "an atoll.Island instead.")


def _closure(optimizer: Any) -> Error:
    return Error("%s evaluates its closure several times a step" %
                 type(optimizer).__name__, reason="CLOSURE",
                 code="UNIMPLEMENTED", hint="Use another optimizer, or make an "
                 "atoll.Island and call its step after each of the "
                 "optimizer's.")


def _in_backward(optimizer: Any) -> Error:
    return Error("%s steps inside backward" % type(optimizer).__name__,
                 reason="OPTIMIZER_IN_BACKWARD", code="UNIMPLEMENTED",
                 hint="Step after backward, or make an atoll.Island and call "
                 "its step after each backward.")


class _Tied:
    """A base of a scheduler's class: only the attachment steps it.

    An attribute `step` of the object would be a part of its state_dict.
    """

    attachment: "_Attachment"

    def step(self, *args: Any, **kwargs: Any) -> None:
        if self.attachment.is_counting:
            super().step(*args, **kwargs)  # type: ignore[misc]
        else:
            self.attachment.told(self)


class _Attachment:
    """The hooks of an island's optimizers.

    Attributes:
      is_counting: A step is counted: schedulers may step.
    """

    def __init__(self, island: Island, model: Any, optimizers: Sequence[Any],
                 others: Sequence[Any], schedulers: Sequence[Any], scaler: Any,
                 passes: Passes, buffers: Sequence[Any]):
        """`others`: optimizers that may step too, and are not counted."""
        self._island = island
        self._model = model
        self._known = [*optimizers, *others]
        self._step = island.step
        island.step = _refuse_step  # type: ignore[method-assign]
        self._optimizers = optimizers
        self._schedulers = schedulers
        self._scaler = scaler
        self._passes = passes
        self._buffers = buffers           # Those that the run averages.
        self._final_buffers: Sequence[Any] = ()
        self._stepped: set[int] = set()   # Optimizers of the open step.
        self._begun = 0                   # Steps of optimizers.
        self._counted = 0                 # Steps.
        # Those before the newest call of each scheduler by the loop.
        self._told = {id(scheduler): 0 for scheduler in schedulers}
        self._frames: dict[int, FrameType] = {}  # The open calls of `step`.
        self._rates: dict[int, list[Any]] = {}
        self._is_due = False              # A step is done, and not counted.
        self._is_complete = False
        self.is_counting = False
        # A compiled step calls it, and is not compiled further.
        self._count = _torch.loaded().compiler.disable(  # type: ignore
            self._count)
        self._handles = [
            handle for optimizer in optimizers for handle in (
                optimizer.register_step_pre_hook(self._before),
                optimizer.register_step_post_hook(self._after))]
        mine = weakref.ref(self)  # The hook outlives an island.
        optim = sys.modules["torch.optim.optimizer"]  # No attribute of torch.
        self._handles.append(optim.register_optimizer_step_pre_hook(
            lambda optimizer, *_: (
                lambda held: held and held._before_any(optimizer))(mine())))
        if island.ended:
            self._end()  # Moves the schedulers, which step here still.
        for scheduler in schedulers:
            kind = type(scheduler)
            scheduler.__class__ = type(kind.__name__, (_Tied, kind),
                                       {"attachment": self})
        if scaler is not None:
            scaler.step = self._watched(scaler.step)
            scaler.update = self._counting(scaler.update)

    def told(self, scheduler: Any) -> None:
        """The loop steps a scheduler. Error: more rarely than here."""
        since = self._counted - self._told[id(scheduler)]
        if since > 1 and not self._island.ended:
            raise Error("the loop steps %s after %d steps of the optimizer, "
                        "and atoll.attach after each" %
                        (type(scheduler).__name__, since),
                        reason="SCHEDULER_COUNTS_EPOCHS",
                        code="FAILED_PRECONDITION",
                        hint="Let it count steps, as StepLR(optimizer, "
                        "step_size=EPOCHS * len(loader)), one SequentialLR "
                        "instead of two by turns. Or make an atoll.Island, "
                        "step it yourself and give it in state=...")
        self._told[id(scheduler)] = self._counted

    def remove(self) -> None:
        """Another island takes the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._passes.remove()
        for scheduler in self._schedulers:
            scheduler.__class__ = type(scheduler).__bases__[1]
        self._schedulers = ()
        if self._scaler is not None:
            del self._scaler.step, self._scaler.update  # Its class has them.
            self._scaler = None

    def _end(self) -> None:
        self._is_complete = True
        self._final_buffers = [buffer.clone() for buffer in self._buffers]
        self._island.close()

    # --- Hooks ---------------------------------------------------------------

    def _before_any(self, optimizer: Any) -> None:
        """Error: an optimizer that is not attached, such as one that the loop
        has made anew, is about to step the model."""
        inner, frame = _optimizer_in(optimizer), sys._getframe(1)
        parts = getattr(inner, "optimizers", None)  # torchtitan has some.
        if not isinstance(parts, (list, tuple)) or not parts:
            parts = [inner]

        def is_known(thing: Any) -> bool:
            return any(thing is known for known in self._known)

        if self._island.ended or is_known(inner) or all(map(is_known, parts)):
            return
        if any(_is_in(frame, opened) for opened in self._frames.values()):
            return  # An attached one steps it.
        mine = {id(parameter) for parameter in self._model.parameters()}
        if any(id(parameter) in mine for group in optimizer.param_groups
               for parameter in group["params"]):
            raise Error("%s steps the model's parameters and is not attached: "
                        "its steps would not count" %
                        type(optimizer).__name__, reason="NOT_ATTACHED",
                        code="FAILED_PRECONDITION",
                        hint="Make all optimizers before atoll.attach, and "
                        "give it a list of them. Give one whose steps shall "
                        "not count, or that steps attached ones, in state=...")

    def _before(self, optimizer: Any, args: tuple[Any, ...],
                kwargs: dict[str, Any]) -> Any:
        """Before a step. An error leaves everything as it was."""
        frame, open_frame = sys._getframe(1), self._frames.get(id(optimizer))
        if open_frame is not None and _is_in(frame, open_frame):
            return None  # The step calls that of its base class.
        self._count()
        if self._island.ended:
            # A forward pass has changed them.
            for buffer, final in zip(self._buffers, self._final_buffers):
                buffer.copy_(final)
            raise RunEnded("%s run %s%s: leave the loop" % (
                ("the", self._island.run_id, " has ended, and the model has "
                 "its final parameters") if self._is_complete else
                ("the island has left", self._island.run_id, "")))
        if _torch.is_in_backward():
            raise _in_backward(optimizer)
        self._begun += 1
        self._frames[id(optimizer)] = frame
        self._put_rates_back(optimizer)  # The step before this one has failed.
        scale = self._island.lr_scale
        if scale != 1:
            self._rates[id(optimizer)] = [group["lr"] for group in
                                          optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * scale
        if len(args) > 1 and args[1] is not None:  # The first one is `self`.
            return (args[0], _once(args[1], optimizer), *args[2:]), kwargs
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": _once(kwargs["closure"],
                                                     optimizer)}
        return None

    def _after(self, optimizer: Any, *_: Any) -> None:
        if self._frames.get(id(optimizer)) is not sys._getframe(1):
            return
        del self._frames[id(optimizer)]
        self._put_rates_back(optimizer)
        if _torch.found_inf(optimizer):
            self._skip()
            return
        self._stepped.add(id(optimizer))
        if len(self._stepped) < len(self._optimizers):
            return
        self._stepped.clear()
        self._is_due = True
        if self._scaler is None:
            self._count()

    def _count(self) -> None:
        if not self._is_due:
            return
        self._is_due = False
        self._counted += 1
        self.is_counting = True
        try:
            for scheduler in self._schedulers:
                scheduler.step()
            if not self._step(**self._passes.take()):
                self._end()
        finally:
            self.is_counting = False

    def _put_rates_back(self, optimizer: Any) -> None:
        for group, rate in zip(optimizer.param_groups,
                               self._rates.pop(id(optimizer), ())):
            group["lr"] = rate

    def _watched(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The scaler's `step`, which does not call the optimizer's always."""

        def watched(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            begun = self._begun
            result = step(optimizer, *args, **kwargs)
            if begun == self._begun and any(
                    _optimizer_in(optimizer) is mine
                    for mine in self._optimizers):
                self._skip()
            return result

        return watched

    def _counting(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """The scaler's `update`: a save needs the scale of the next step."""

        def counting(*args: Any, **kwargs: Any) -> None:
            update(*args, **kwargs)
            self._count()

        return counting

    def _skip(self) -> None:
        if not self._stepped:
            self._passes.drop()
        self._island.tell_skipped()


def _is_in(frame: FrameType | None, outer: FrameType) -> bool:
    """`outer` is the frame, or has called it."""
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is not None


def _once(closure: Callable[[], Any], optimizer: Any) -> Callable[[], Any]:
    is_done = False

    def evaluate() -> Any:
        nonlocal is_done
        if is_done:
            raise _closure(optimizer)
        is_done = True
        return closure()

    return evaluate
