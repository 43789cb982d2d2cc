"""For Transformers: `Trainer(…, callbacks=[gpuvitals.transformers.Gpuvitals("run")])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._callback import Training

if TYPE_CHECKING:
    # Untyped here, so that types are checked without Transformers, too.
    TrainerCallback: Any = object
else:
    from transformers import TrainerCallback


class Gpuvitals(TrainerCallback):  # type: ignore[misc]
    """Records a training, and marks its steps and the values that it logs. Takes what `gpuvitals.record` takes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._training = Training(*arguments, **named)

    @property
    def run(self) -> Any:
        """The `gpuvitals.Run`, for marks and values of your own."""
        return self._training.run

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.begin()
        self.run.phase("train")

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run.phase("step", state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # What comes before the next step is decided by now: the Trainer does it before it asks for the next batch.
        if control.should_evaluate:
            self.run.phase("eval")
        elif control.should_save:
            self.run.phase("checkpoint")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._is_training:
            self.run.phase("checkpoint" if control.should_save else "train")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._is_training:
            self.run.phase("train")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if self._is_training:
            self._training.values(dict(logs or {}))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._training.end()

    @property
    def _is_training(self) -> bool:
        return bool(self.run.is_running)
